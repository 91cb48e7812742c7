-- Removes a worker from the group.
--
-- Atomically: if nothing is pending for the worker, its name is removed from the group and from the list of workers.
-- Otherwise the list says that it has left, so that the others take over what it held without waiting for the end of its
-- lease. XGROUP DELCONSUMER drops what is pending for a consumer: one script closes the race with an entry that is delivered
-- between the look and the removal. Sent twice, it changes nothing.
--
-- It does nothing if a lease is stored that is not the given one: a worker lives under that name again, and a call that the
-- network delivers late must not end its lease.
--
-- KEYS  stream, workers (sorted set: consumer -> end of its lease in ms, 0 if it has left), record (string that describes the
--       worker), claim (string by which the worker has its name)
-- ARGV  group, consumer, workers_kept_ms (how long the list of workers outlives this call), lease (the score that the caller
--       has read, 0 if there was none)
-- Returns 1 if the name was removed, 0 if it stays because entries are pending for it or a worker lives under it again
local stream, workers, record, claim = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer, workers_kept_ms, lease = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local stored = tonumber(redis.call('ZSCORE', workers, consumer) or 0)
if stored ~= 0 and stored ~= lease then return 0 end
local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1, consumer)
if pending.err and not string.find(pending.err, 'NOGROUP', 1, true) then return pending end
redis.call('DEL', record, claim)  -- needs no memory, and what follows a write passes without memory
if pending.err or #pending == 0 then
  redis.call('ZREM', workers, consumer)
  redis.pcall('XGROUP', 'DELCONSUMER', stream, group, consumer)
  return 1
end
redis.call('ZADD', workers, 0, consumer)
redis.pcall('PEXPIRE', workers, workers_kept_ms)  -- also if the list begins here
return 0
