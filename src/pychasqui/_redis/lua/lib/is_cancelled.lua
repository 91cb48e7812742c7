-- Returns whether there is a note that cancels the job of an entry: about this entry, or about the job's id and all entries up
-- to one; and the error if the server refuses to say. A key that holds something else has no notes.
local function is_cancelled(notes, entry_id, job_id)
  local found = redis.pcall('HMGET', notes, entry_id, 'id ' .. job_id)
  if found.err then return false, not string.find(found.err, 'WRONGTYPE', 1, true) and found end
  local last = string.match(found[2] or '', '^%d+-%d+$')
  return found[1] ~= false or (last ~= nil and not is_after(entry_id, last))
end
