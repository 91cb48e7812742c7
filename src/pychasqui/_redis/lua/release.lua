-- Hands unstarted entries back to the group: anybody may take them at once, and the delivery is not counted.
--
-- Atomically: an entry that is still pending for this consumer, by that delivery, passes to a consumer that counts as
-- having left, looks long forgotten to consumers of other kinds, and has the delivery count that it had before. The one
-- who hands it back may go on living: its lease does not protect the entry any more. Sending it twice changes nothing.
--
-- KEYS  stream, workers
-- ARGV  group, consumer, heir (the consumer that has left), idle_ms, then entry id, earlier deliveries for each entry
-- Returns how many were handed back
local stream, workers = KEYS[1], KEYS[2]
local group, consumer, heir, idle_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local released = 0
for i = 5, #ARGV, 2 do
  local id, earlier = ARGV[i], tonumber(ARGV[i + 1])
  local pending = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)
  if not pending.err and #pending == 1 and pending[1][4] <= earlier + 1 then
    redis.call('XCLAIM', stream, group, heir, 0, id, 'IDLE', idle_ms, 'RETRYCOUNT', earlier, 'JUSTID')
    released = released + 1
  end
end
if released > 0 then
  redis.call('ZADD', workers, 0, heir)
  redis.call('PEXPIRE', workers, 604800000)  -- a week, as keep.lua has it: also if the list begins here
end
return released
