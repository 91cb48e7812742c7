-- Notes in the registry of queues that a queue is in use.
--
-- Atomically: the queue was last seen now, by the server's clock. Names that were not seen for `kept_ms` are removed, and so
-- are the oldest ones beyond `most_names`. The registry only helps to find queues, so this script never fails: what the
-- server refuses is returned as text, because an error may end the connection. Sent twice, it changes nothing but the time.
--
-- KEYS  none: the registry belongs to no queue. If it were named here, a cluster would redirect the call to the registry's
--       node, and the connection of the queue would follow
-- ARGV  registry (sorted set: queue -> when it was last seen, in ms), queue, kept_ms, most_names
-- Returns an empty string if the name is in the registry now, else why not
local registry, queue, kept_ms, most_names = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
-- include lib/server_time.lua

-- Tried, it would stand in the log of the server each time; Redis 6.2 cannot be asked.
if redis.acl_check_cmd and not redis.acl_check_cmd('ZADD', registry, 0, queue) then
  return 'NOPERM this user has no permissions to write ' .. registry
end
local count = redis.pcall('ZCARD', registry)
if type(count) == 'table' then return count.err end
local now_ms = server_time_ms(math.floor)
local added = redis.pcall('ZADD', registry, now_ms, queue)
if type(added) == 'table' then return added.err end
redis.pcall('ZREMRANGEBYSCORE', registry, '-inf', now_ms - kept_ms)
redis.pcall('ZREMRANGEBYSCORE', registry, now_ms + kept_ms, '+inf')  -- by a clock that was wrong, or by another program
redis.pcall('ZREMRANGEBYRANK', registry, 0, -1 - most_names)
redis.pcall('PEXPIRE', registry, kept_ms)
return ''
