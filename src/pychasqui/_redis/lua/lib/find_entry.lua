-- Returns the id and the name of a job's entry if this entry is in the stream and has the job, else nil; and the error if the
-- server refuses to say. Anybody may have written where the job is: a number may be too large for an id, or have leading
-- zeros, which the id that the server returns has not.
local function find_entry(entry_id, job_id)
  local found = redis.pcall('XRANGE', stream, entry_id, entry_id)
  if found.err then return nil, nil, not string.find(found.err, 'Invalid stream ID', 1, true) and found end
  local id, fields = unpack(found[1] or {'', {}})
  local name, is_own = '', false
  for i = 1, #fields, 2 do
    if fields[i] == 'n' then name = fields[i + 1] end
    if fields[i] == 'd' then is_own = id_of(fields[i + 1]) == job_id end
  end
  if is_own then return id, name end
end
