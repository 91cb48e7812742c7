-- Lets the next job of an id in when the job of this entry has ended. Deletes the uniqueness key, unless it has a window of
-- its own, and the key that official producers check. Both stay if they belong to another job by now. Where an official
-- promoter moved the job, the uniqueness key still says that it is delayed, which is true only if the delayed set has it.
-- Nothing fails here: a key that cannot be deleted points at no job, and add_with_options takes that for none.
local function release_id(job_id, entry_id)
  local unique, official = unique_key(job_id), official_key(job_id)
  local found = redis.pcall('MGET', unique, official, index_key(job_id))
  local location, is_official, member = found[1] or 'd', found[2], found[3]
  if not (found[1] or is_official) then return end
  local is_delayed = member and type(redis.pcall('ZSCORE', delayed, member)) == 'string'
  local is_own = location == entry_id
    or location == 'w' .. entry_id
    or ((location == 'd' or location == 'wd') and not is_delayed)
  if is_own and string.sub(location, 1, 1) ~= 'w' then redis.pcall('DEL', unique) end
  if is_own and is_official and not is_delayed then redis.pcall('DEL', official) end
end
