-- Returns whether the key that finds a delayed job by its id names another member of the delayed set than this one. Jobs of
-- one id may wait side by side: one that was replayed, one that was added when the window of the first was over. Such a
-- key is left alone, and so is one beyond 1 MiB of them: a call does not read more.
local other_bytes_left = 2 ^ 20
local function is_index_of_other(job_id, member)
  local start = redis.pcall('GETRANGE', index_key(job_id), 0, #member)
  if type(start) == 'table' or start == '' or start == member then return false end
  if other_bytes_left <= 0 then return true end
  local other = redis.pcall('GETRANGE', index_key(job_id), 0, other_bytes_left)
  other_bytes_left = other_bytes_left - #other
  return other_bytes_left < 0 or type(redis.pcall('ZSCORE', delayed, other)) == 'string'
end
