-- A worker leaves the group.
--
-- Atomically: with nothing pending, its name is removed from the group and from the list of workers; otherwise it is
-- marked as having left, so that the others take over what it held without waiting for its lease to end. Removing a
-- consumer drops its pending entries, which is why the two belong together.
--
-- KEYS  stream, workers
-- ARGV  group, consumer
-- Returns 1 if the name was removed, 0 if entries keep it
local stream, workers = KEYS[1], KEYS[2]
local group, consumer = ARGV[1], ARGV[2]

local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1, consumer)
if pending.err and not string.find(pending.err, 'NOGROUP', 1, true) then return pending end
if pending.err or #pending == 0 then
  redis.call('ZREM', workers, consumer)
  redis.pcall('XGROUP', 'DELCONSUMER', stream, group, consumer)
  return 1
end
redis.call('ZREM', workers, '')  -- nobody's name: it needs no memory, and what follows a write passes without memory
redis.call('ZADD', workers, 0, consumer)
redis.pcall('PEXPIRE', workers, 604800000)  -- a week, as keep.lua has it: also if the list begins here
return 0
