-- Counts one more delivery of entries that a previous process of this worker held and may have run.
--
-- Atomically: an entry that is still pending for this consumer, by the delivery that was seen, counts as delivered once
-- more. Without it a worker with a fixed name that dies again and again would never use up a job's attempts. Sent twice, it
-- changes nothing: the second time the delivery is another.
--
-- KEYS  stream
-- ARGV  group, consumer, then entry id, delivery for each entry
-- Returns how many were counted
local stream = KEYS[1]
local group, consumer = ARGV[1], ARGV[2]
local most = 2 ^ 53  -- beyond it Lua's numbers have gaps

local counted = 0
for i = 3, #ARGV, 2 do
  local id, delivery = ARGV[i], tonumber(ARGV[i + 1])
  local pending = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)
  local error = pending.err or ''
  if error ~= '' and not (string.find(error, 'NOGROUP', 1, true) or string.find(error, 'Invalid stream ID', 1, true)) then
    return pending
  end
  if not pending.err and #pending == 1 and pending[1][4] == delivery then
    local next_delivery = string.format('%.0f', math.min(delivery + 1, most))
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'RETRYCOUNT', next_delivery, 'JUSTID')
    counted = counted + 1
  end
end
return counted
