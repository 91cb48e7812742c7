-- Lets the next of a job's id in when the job of this entry has ended: its marker goes, unless that has a window of its
-- own, and so does the one that official producers look at. Both stay if they stand for another job by now. Where an
-- official promoter moved the job, our marker still says that it is delayed: it is, if the delayed set has it. Nothing
-- fails here: a marker that cannot be removed says where no job is, and add_with_options takes that for none.
local function release_id(prefix, job_id, id)
  local marker, official = prefix .. ':unique:' .. job_id, prefix .. ':dlid:' .. job_id
  local found = redis.pcall('MGET', marker, official, prefix .. ':didx:' .. job_id)
  local place, is_official, member = found[1] or 'd', found[2], found[3]
  if not (found[1] or is_official) then return end
  local is_delayed = member and type(redis.pcall('ZSCORE', prefix .. ':delayed', member)) == 'string'
  local is_its_own = place == id or place == 'w' .. id or ((place == 'd' or place == 'wd') and not is_delayed)
  if is_its_own and string.sub(place, 1, 1) ~= 'w' then redis.pcall('DEL', marker) end
  if is_its_own and is_official and not is_delayed then redis.pcall('DEL', official) end
end
