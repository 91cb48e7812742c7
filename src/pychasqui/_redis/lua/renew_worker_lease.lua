-- Renews a worker's lease and its hold on entries.
--
-- Atomically: the lease ends `lease_ms` from now, and each given entry that is still pending for the worker, by the given
-- delivery, counts as just delivered, without one more delivery. This closes the race with a worker that has taken an entry
-- over: a worker that was suspended must not take it back. An entry that was taken over and has come back counts as lost,
-- too, because that is another delivery, with another attempt. Sent twice, it renews again.
--
-- KEYS  stream, workers (sorted set: consumer -> end of its lease in ms, 0 if it has left), reports (hash of rebuild_group)
-- ARGV  group, consumer, lease_ms, workers_kept_ms (how long the list of workers outlives this call), then for each entry:
--       id, delivery
-- Fails with NOGROUP while the group is missing or not complete, and renews nothing: rebuild_group renews the leases of
-- workers that report what they hold
-- Returns the ids of the entries that are lost: no longer pending for this consumer by that delivery
local stream, workers, reports = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, lease_ms, workers_kept_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

-- include lib/refusal.lua
-- include lib/is_held.lua
-- include lib/unfinished_group.lua
-- include lib/server_time.lua

local first = redis.pcall('XPENDING', stream, group, '-', '+', 1)
if first.err and string.find(first.err, 'NOGROUP', 1, true) then return first end
local unfinished = unfinished_group(reports, group)
if unfinished then return unfinished end

-- Whatever could be refused must be refused before the lease is renewed. PEXPIRE comes first: it needs no memory, and what
-- follows a write passes without memory: a full server must not end a lease.
local refused = refusal('PEXPIRE', workers, workers_kept_ms)
  or refusal('ZADD', workers, 'XX', 'GT', '-inf', consumer)
  or refusal('XCLAIM', stream, group, consumer, 0, '0-0', 'JUSTID')
if refused then return refused end
redis.call('ZADD', workers, server_time_ms(math.floor) + lease_ms, consumer)
redis.call('PEXPIRE', workers, workers_kept_ms)

local mine, lost = {}, {}
for i = 5, #ARGV, 2 do
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
return lost
