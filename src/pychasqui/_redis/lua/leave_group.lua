-- Removes a worker from the group.
--
-- Atomically: with nothing pending, its name is removed from the group and from the list of workers; otherwise the list says
-- that it has left, so that the others take over what it held without waiting for its lease to end. Removing a consumer
-- drops its pending entries: the two steps in one close the race with an entry that arrives in between. Sent twice, it
-- changes nothing.
--
-- KEYS  stream, workers
-- ARGV  group, consumer, workers_kept_ms (how long the list of workers outlives its last renewal)
-- Returns 1 if the name was removed, 0 if entries keep it
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
