-- Adds a job to the delayed set, with the key that finds it by its id. Returns its location and its member.
local function add_to_delayed(name, envelope, job_id, due_ms)
  local member = struct.pack('<I4', #name) .. name .. envelope
  call('ZADD', delayed, due_ms, member)
  call('SET', index_key(job_id), member, 'PX', math.min(due_ms - now_ms + kept_ms, longest_ttl_ms))
  soonest = math.min(soonest, due_ms)
  return 'd', member
end

-- A stream without ids left refuses every entry: then no job of the batch joins it, and if none has been stored elsewhere,
-- the batch fails.
local function add_to_stream(name, envelope, job_id, is_unique)
  local entry_id = add_entry(stream, name, envelope, is_unique and hides_its_origin(job_id))
  if type(entry_id) == 'string' then return entry_id end
  failure = entry_id
  return nil
end

-- Writes the uniqueness key of a job, and the key that shows official producers that the job is delayed.
local function claim_id(job_id, location, due_ms, window_ms, is_official)
  local ttl_ms = window_ms > 0 and window_ms or math.min(math.max(0, due_ms - now_ms) + kept_ms, longest_ttl_ms)
  call('SET', unique_key(job_id), (window_ms > 0 and 'w' or '') .. location, 'PX', ttl_ms)
  if location == 'd' then
    local official_ms = math.min(1000 * math.max(1, math.floor((due_ms - now_ms) / 1000)) + 3600000, longest_ttl_ms)
    call('SET', official_key(job_id), '1', 'PX', window_ms > 0 and math.min(window_ms, official_ms) or official_ms)
  elseif is_official then
    redis.pcall('DEL', official_key(job_id))
  end
end
