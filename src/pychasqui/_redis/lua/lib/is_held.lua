-- Returns whether an entry is still pending for this consumer, by the delivery that its run began with, and the error if
-- the server does not say. A count below that delivery is of a group that was made anew: the entry came again, to the
-- same run.
local function is_held(stream, group, consumer, id, delivery)
  local pending = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)
  if pending.err then
    if string.find(pending.err, 'Invalid stream ID', 1, true) then return false end
    return false, pending
  end
  return #pending == 1 and pending[1][4] <= delivery
end
