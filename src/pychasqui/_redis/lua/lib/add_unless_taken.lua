-- Adds the job of a batch of add_with_options whose words stand in ARGV from `i` on, unless another of its id is there.
-- Returns the character of its answer.
local function add_unless_taken(i)
  local name, job_id, only, window_ms = ARGV[i], ARGV[i + 2], ARGV[i + 4], tonumber(ARGV[i + 5])
  local envelope = with_expiry(ARGV[i + 1], tonumber(ARGV[i + 6]))
  local due_ms, relative = 0, string.match(ARGV[i + 3], '^%+(%d+)$')
  if relative then due_ms = now_ms + tonumber(relative) elseif ARGV[i + 3] ~= '' then due_ms = tonumber(ARGV[i + 3]) end
  local found, is_official
  if only ~= '' then found, is_official = find_unique(job_id, now_ms, kept_ms) end
  if found and (only == 'keep' or not is_waiting(found)) then return 'd' end
  if found and only == 'replace' then due_ms = found.due_ms or 0 end
  local location, member
  if due_ms > now_ms then
    location, member = add_to_delayed(name, envelope, job_id, due_ms)
  elseif room >= 1 or found then
    location = add_to_stream(name, envelope, job_id, only ~= '')
    room = room - 1
  end
  if not location then return 'f' end
  if found and (found.entry or found.member ~= member) then remove_waiting(found) end
  if found and found.member and location ~= 'd' then redis.pcall('DEL', index_key(job_id)) end
  if found and found.entry then room = room + 1 end
  if only ~= '' then claim_id(job_id, location, due_ms, window_ms, is_official) end
  return found and 'r' or 'n'
end
