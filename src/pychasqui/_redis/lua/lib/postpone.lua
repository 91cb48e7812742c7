-- Moves the time of a delayed job. Returns the error if that is refused. The TTL of a uniqueness key shows when its job is
-- due: see find_unique. A window keeps its end.
local function postpone(job_id, member, due_ms, delay_ms, kept_ms)
  local moved = redis.pcall('ZADD', delayed, due_ms, member)
  if type(moved) == 'table' then return moved end
  local ttl_ms = math.min(delay_ms + kept_ms, longest_ttl_ms)
  redis.pcall('PEXPIRE', index_key(job_id), ttl_ms)
  local location = redis.pcall('MGET', unique_key(job_id))[1]
  if location == 'd' then redis.pcall('PEXPIRE', unique_key(job_id), ttl_ms) end
  if location ~= 'wd' then
    redis.pcall('PEXPIRE', official_key(job_id), math.min(math.max(1000, delay_ms) + 3600000, longest_ttl_ms))
  end
  return nil
end
