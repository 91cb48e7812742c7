-- Finds delayed jobs by their ids, and cancels them, moves their time, or runs them at once.
--
-- Atomically, for each id: only if its job is still in the delayed set something is done to it. Closes the race with
-- promotion: exactly one of the two has the job. Sent twice, what was done is not done again, and so not reported. An
-- index or a marker that cannot be written counts as none without its member. A job that the stream refuses stays
-- delayed, and so do those behind it.
--
-- KEYS  delayed, stream
-- ARGV  what (cancel, postpone, run), delay_ms (for postpone), prefix of the queue's keys, kept_ms, then ids
-- Returns {1 for each id that was found and 0 for each that was not, the error that the rest was refused with, or empty}
local delayed, stream = KEYS[1], KEYS[2]
local what, delay_ms, prefix, kept_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local call, pcall = redis.call, redis.pcall

-- include lib/refusal.lua

local time = call('TIME')
local now_ms = time[1] * 1000 + math.ceil(time[2] / 1000)  -- never early
local ttl_ms = math.min(delay_ms + kept_ms, 9e15)  -- Redis takes none much longer than this

-- Reads before the first write. MGET takes what is of another type for nothing.
local members = {}
for i = 5, #ARGV do
  local found = pcall('MGET', prefix .. ':didx:' .. ARGV[i])
  if found.err then return found end
  members[i] = found[1]
end
local refused = refusal('ZREMRANGEBYRANK', delayed, 1, 0) or refusal('ZRANK', delayed, 'none')
if refused then return refused end

-- Returns the new entry's id, or the error.
local function add(id, member, marker)
  local size = #member >= 4 and struct.unpack('<I4', member) or 0
  local name, envelope = string.sub(member, 5, 4 + size), string.sub(member, 5 + size)
  local words = {'d', envelope}
  if name ~= '' then words[3], words[4] = 'n', name end
  -- As add_with_options does it.
  if marker and #id >= 26 then words[#words + 1], words[#words + 2] = 'u', '1' end
  return pcall('XADD', stream, '*', unpack(words))
end

local function postpone(member, index, key, official)
  local moved = pcall('ZADD', delayed, now_ms + delay_ms, member)
  if type(moved) == 'table' then return moved end
  pcall('PEXPIRE', index, ttl_ms)
  -- How long a marker lasts says when its job is due: see find_unique. A window keeps its end.
  local marker = pcall('MGET', key)[1]
  if marker == 'd' then pcall('PEXPIRE', key, ttl_ms) end
  if marker ~= 'wd' then pcall('PEXPIRE', official, math.min(math.max(1000, delay_ms) + 3600000, 9e15)) end
  return nil
end

local function take_out(id, member, rank, index, key, official)
  local marker, place = pcall('MGET', key)[1], nil
  if what == 'run' then
    place = add(id, member, marker)
    if type(place) == 'table' then return place end
  end
  call('ZREMRANGEBYRANK', delayed, rank, rank)
  pcall('DEL', index)
  if what == 'cancel' then
    pcall('DEL', key, official)
  elseif marker then
    pcall('SET', key, (string.sub(marker, 1, 1) == 'w' and 'w' or '') .. place, 'KEEPTTL')
  end
  return nil
end

local found, why = {}, ''
for i = 5, #ARGV do
  local id, member = ARGV[i], members[i]
  local index, key, official = prefix .. ':didx:' .. id, prefix .. ':unique:' .. id, prefix .. ':dlid:' .. id
  local rank = member and call('ZRANK', delayed, member)
  if not rank then
    found[#found + 1] = 0
  else
    local trouble
    if what == 'postpone' then
      trouble = postpone(member, index, key, official)
    else
      trouble = take_out(id, member, rank, index, key, official)
    end
    if trouble then
      why = trouble.err
      break
    end
    found[#found + 1] = 1
  end
end

if what == 'postpone' then pcall('PUBLISH', prefix .. ':due', delay_ms) end
return {found, why}
