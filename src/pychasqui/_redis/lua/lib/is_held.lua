-- The gate of every script that acts for a running job. Returns whether an entry is still pending for this consumer, by the
-- delivery that the run began with, and the error if the server refuses to say. A lower count is of a group that was
-- recreated: the entry was delivered again, to the same run.
local function is_held(stream, group, consumer, id, delivery)
  local pending = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)
  if pending.err then
    if string.find(pending.err, 'Invalid stream ID', 1, true) then return false end
    return false, pending
  end
  return #pending == 1 and pending[1][4] <= delivery
end
