-- Makes the uniqueness key of a job that was promoted name its entry. Returns whether the key that finds it in the delayed
-- set must go. Both stay as they are if they belong to another job of the same id.
-- Hot: an id of 26 characters without a uniqueness key is one of ours, which no other job has.
local function keys_follow(job_id, member, unique, location, entry_id)
  if (location or #job_id ~= 26) and is_index_of_other(job_id, member) then return false end
  if location and not names_entry(location) then point_at_entry(unique, location, entry_id) end
  return true
end
