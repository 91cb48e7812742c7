-- Removes a worker from the group.
--
-- Atomically: if nothing is pending for the worker, its name is removed from the group and from the list of workers.
-- Otherwise the list says that it has left, so that the others take over what it held without waiting for the end of its
-- lease. XGROUP DELCONSUMER drops what is pending for a consumer: one script closes the race with an entry that is delivered
-- between the look and the removal. Sent twice, it changes nothing.
--
-- KEYS  stream, workers (sorted set: consumer -> end of its lease in ms, 0 if it has left)
-- ARGV  group, consumer, workers_kept_ms (how long the list of workers outlives this call)
-- Returns 1 if the name was removed, 0 if it stays because entries are pending for it
local stream, workers = KEYS[1], KEYS[2]
local group, consumer, workers_kept_ms = ARGV[1], ARGV[2], ARGV[3]

local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1, consumer)
if pending.err and not string.find(pending.err, 'NOGROUP', 1, true) then return pending end
if pending.err or #pending == 0 then
  redis.call('ZREM', workers, consumer)
  redis.pcall('XGROUP', 'DELCONSUMER', stream, group, consumer)
  return 1
end
redis.call('ZREM', workers, '')  -- removes nothing and needs no memory: what follows a write passes without memory
redis.call('ZADD', workers, 0, consumer)
redis.pcall('PEXPIRE', workers, workers_kept_ms)  -- also if the list begins here
return 0
