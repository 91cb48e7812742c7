-- Makes the uniqueness key of a job whose entry goes to the delayed set say so. A window keeps its end. A job of an
-- official producer, or one that an official promoter moved, has no uniqueness key that names its entry.
local function point_at_delayed(job_id, entry_id, ttl_ms)
  local unique = unique_key(job_id)
  local found = redis.pcall('MGET', unique, official_key(job_id))
  local location, is_official = found[1], found[2]
  if location == entry_id or location == 'd' or (is_official and not location) then
    redis.pcall('SET', unique, 'd', 'PX', ttl_ms)
  elseif location == 'w' .. entry_id then
    redis.pcall('SET', unique, 'wd', 'KEEPTTL')
  end
end
