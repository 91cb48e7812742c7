-- Returns whether a failed job that joins the delayed set is there beside another one that has the keys of the id. The job that
-- the uniqueness key names has them.
local function is_beside_other(job_id, entry_id, member)
  if not is_index_of_other(job_id, member) then return false end
  local location = redis.pcall('MGET', unique_key(job_id))[1]
  return location ~= entry_id and location ~= 'w' .. entry_id
end
