-- Returns the name of a job if this entry is in the stream and has it, nil if not.
local function find_name_in(entry_id, job_id)
  local entry = redis.call('XRANGE', stream, entry_id, entry_id)[1]
  if not entry then return nil end
  local name, is_own = '', false
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'n' then name = entry[2][i + 1] end
    if entry[2][i] == 'd' then is_own = id_of(entry[2][i + 1]) == job_id end
  end
  return is_own and name or nil
end
