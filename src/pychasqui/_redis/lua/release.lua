-- Hands unstarted entries back to the group: anybody may take them at once, and the delivery is not counted.
--
-- Atomically: an entry that is still pending for this consumer looks long forgotten, and its delivery count is what
-- it was before. Sending it twice changes nothing.
--
-- KEYS  stream
-- ARGV  group, consumer, idle_ms, then entry id, earlier deliveries for each entry
-- Returns how many were handed back
local stream = KEYS[1]
local group, consumer, idle_ms = ARGV[1], ARGV[2], ARGV[3]

local released = 0
for i = 4, #ARGV, 2 do
  local id, deliveries = ARGV[i], ARGV[i + 1]
  local pending = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)
  if not pending.err and #pending == 1 then
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', idle_ms, 'RETRYCOUNT', deliveries, 'JUSTID')
    released = released + 1
  end
end
return released
