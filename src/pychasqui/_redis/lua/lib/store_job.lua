-- The places where a job is stored, and the marker of one that is the only one of its id.

local function delay(name, envelope, id, due_ms)
  local member = struct.pack('<I4', #name) .. name .. envelope
  call('ZADD', delayed, due_ms, member)
  call('SET', prefix .. ':didx:' .. id, member, 'PX', math.min(due_ms - now_ms + kept_ms, longest_ms))
  soonest = math.min(soonest, due_ms)
  return 'd', member
end

-- A stream whose ids are used up refuses every entry: then no job of the batch joins it, and if none has been stored
-- elsewhere, the batch fails.
local function add_to_stream(name, envelope, id, is_only)
  local words = {'d', envelope}
  if name ~= '' then words[3], words[4] = 'n', name end
  -- An id of 26 letters, as ours have, does not show that it was given; in UTF-8 it has as many bytes or more.
  if is_only and #id >= 26 then words[#words + 1], words[#words + 2] = 'u', '1' end
  local entry_id = redis.pcall('XADD', stream, '*', unpack(words))
  if type(entry_id) == 'string' then return entry_id end
  failure = entry_id
  return nil
end

-- Says where a job is that is the only one of its id, and to official producers that it is delayed.
local function mark(id, place, due_ms, window_ms, is_official)
  local ttl_ms = window_ms > 0 and window_ms or math.min(math.max(0, due_ms - now_ms) + kept_ms, longest_ms)
  call('SET', prefix .. ':unique:' .. id, (window_ms > 0 and 'w' or '') .. place, 'PX', ttl_ms)
  if place == 'd' then
    local official_ms = math.min(1000 * math.max(1, math.floor((due_ms - now_ms) / 1000)) + 3600000, longest_ms)
    call('SET', prefix .. ':dlid:' .. id, '1', 'PX', window_ms > 0 and math.min(window_ms, official_ms) or official_ms)
  elseif is_official then
    redis.pcall('DEL', prefix .. ':dlid:' .. id)
  end
end
