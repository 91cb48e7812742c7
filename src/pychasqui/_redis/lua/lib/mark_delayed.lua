-- The marker of a job whose entry goes to the delayed set says so from then on. One that has a window keeps its end.
-- A job of an official producer, or one that an official promoter moved, has no marker that knows its entry.
local function mark_delayed(prefix, job_id, id, ttl_ms)
  local marker = prefix .. ':unique:' .. job_id
  local found = redis.pcall('MGET', marker, prefix .. ':dlid:' .. job_id)
  local place, is_official = found[1], found[2]
  if place == id or place == 'd' or (is_official and not place) then
    redis.pcall('SET', marker, 'd', 'PX', ttl_ms)
  elseif place == 'w' .. id then
    redis.pcall('SET', marker, 'wd', 'KEEPTTL')
  end
end
