-- Renews a worker's lease and its hold on entries, and returns what a worker asks as often: one call for all of it.
--
-- Atomically: the lease ends `lease_ms` from now, and each given entry that is still pending for the worker, by the given
-- delivery, counts as just delivered, without one more delivery. This closes the race with a worker that has taken an entry
-- over: a worker that was suspended must not take it back. An entry that was taken over and has come back counts as lost,
-- too, because that is another delivery, with another attempt. The worker's record is written as far as the server takes it.
-- Sent twice, it renews again.
--
-- KEYS  stream, workers (sorted set: consumer -> end of its lease in ms, 0 if it has left), reports (hash of rebuild_group),
--       record (string that describes the worker), paused (exists while the queue is paused), cancelled (exists while there are
--       notes about cancelled jobs)
-- ARGV  group, consumer, lease_ms, workers_kept_ms (how long the list of workers outlives this call), record (empty: it is not
--       written), record_kept_ms, then for each entry: id, delivery
-- Fails with NOGROUP while the group is missing or not complete, and renews nothing: rebuild_group renews the leases of
-- workers that report what they hold
-- Returns {1 if the queue is paused, 0 if not, -1 if the server does not say; the same for notes about cancelled jobs; how many
-- leases go on; how many are over; the ids of the entries that are lost: no longer pending for this consumer by that delivery}
local stream, workers, reports, record_key, paused, cancelled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local group, consumer, lease_ms, workers_kept_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local record, record_kept_ms = ARGV[5], ARGV[6]

-- include lib/refusal.lua
-- include lib/is_held.lua
-- include lib/unfinished_group.lua
-- include lib/server_time.lua

-- Whatever could be refused must be refused before the lease is renewed. XCLAIM and PEXPIRE come first: they need no memory,
-- and what follows a write passes without memory: a full server must not end a lease.
local refused = unfinished_group(reports, group)
  or refusal('XCLAIM', stream, group, consumer, 0, '0-0', 'JUSTID')
  or refusal('PEXPIRE', workers, workers_kept_ms)
if refused then return refused end
local now_ms = server_time_ms(math.floor)
redis.call('ZADD', workers, now_ms + lease_ms, consumer)
redis.call('PEXPIRE', workers, workers_kept_ms)

local mine, lost = {}, {}
for i = 7, #ARGV, 2 do
  local id, delivery = ARGV[i], tonumber(ARGV[i + 1])
  if is_held(stream, group, consumer, id, delivery) then
    mine[#mine + 1] = id
  else
    lost[#lost + 1] = id
  end
end
if #mine > 0 then
  mine[#mine + 1] = 'JUSTID'
  redis.call('XCLAIM', stream, group, consumer, 0, unpack(mine))
end

-- Best effort: the next renewal asks and writes again.
if record ~= '' then redis.pcall('SET', record_key, record, 'PX', record_kept_ms) end
local function number_or(instead, reply) return type(reply) == 'number' and reply or instead end
local living = number_or(1, redis.pcall('ZCOUNT', workers, now_ms, '+inf'))
local over = number_or(0, redis.pcall('ZCOUNT', workers, '-inf', '(' .. now_ms))
local is_paused = number_or(-1, redis.pcall('EXISTS', paused))
local has_cancellations = number_or(-1, redis.pcall('EXISTS', cancelled))
return {is_paused, has_cancellations, living, over, lost}
