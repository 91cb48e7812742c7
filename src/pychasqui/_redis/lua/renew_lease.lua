-- Renews a worker's lease and its hold on entries.
--
-- Atomically: the worker is known to live until now + lease, and those of the entries that are still pending for it
-- look fresh to every other consumer, without a delivery being counted. An entry that somebody has taken over in the
-- meantime is left alone: a worker that was paused must not steal it back. One that has come back since counts as
-- lost, too: it is another delivery, with another attempt.
--
-- Fails with NOGROUP while the group is gone, and renews nothing: a lease goes on only for who tells regroup.lua what it
-- holds.
--
-- KEYS  stream, workers (sorted set: consumer -> end of its lease in ms, 0 if it has left)
-- ARGV  group, consumer, lease_ms, keep_key_ms, then entry id, delivery for each entry
-- Returns the ids that are not this consumer's any more by that delivery
local stream, workers = KEYS[1], KEYS[2]
local group, consumer, lease_ms, keep_key_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local first = redis.pcall('XPENDING', stream, group, '-', '+', 1)
if first.err and string.find(first.err, 'NOGROUP', 1, true) then return first end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
-- PERSIST needs no memory, and what follows a first write passes when memory is full: a lease must not end by that.
redis.call('PERSIST', workers)
redis.call('ZADD', workers, now_ms + lease_ms, consumer)
redis.call('PEXPIRE', workers, keep_key_ms)

local mine, lost = {}, {}
for i = 5, #ARGV, 2 do
  local id, delivery = ARGV[i], tonumber(ARGV[i + 1])
  local pending = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)
  if not pending.err and #pending == 1 and pending[1][4] <= delivery then
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
