-- Finds delayed jobs by their ids, and cancels them, moves their time, or runs them at once.
--
-- Atomically, for each id: only if its job is still in the delayed set something is done to it. Closes the race with
-- promotion: exactly one of the two has the job. Sent twice, what was done is not done again, and so not reported.
--
-- KEYS  delayed, stream
-- ARGV  what (cancel, postpone, run), delay_ms (for postpone), prefix of the queue's keys, kept_ms, then ids
-- Returns 1 for each id that was found, else 0
local delayed, stream = KEYS[1], KEYS[2]
local what, delay_ms, prefix, kept_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local call = redis.call

local kind = call('TYPE', stream).ok
if kind ~= 'none' and kind ~= 'stream' then
  return redis.error_reply('WRONGTYPE ' .. stream .. ' is a ' .. kind .. ', not a stream')
end

local time = call('TIME')
local now_ms = time[1] * 1000 + math.ceil(time[2] / 1000)  -- never early
local ttl_ms = math.min(delay_ms + kept_ms, 9e15)  -- Redis takes none much longer than this

local function run(id, member)
  local size = struct.unpack('<I4', member)
  local name, envelope = string.sub(member, 5, 4 + size), string.sub(member, 5 + size)
  local marker = call('MGET', prefix .. ':unique:' .. id)[1]
  local words = {'d', envelope}
  if name ~= '' then words[3], words[4] = 'n', name end
  -- As add_on_terms does it.
  if marker and #id >= 26 then words[#words + 1], words[#words + 2] = 'u', '1' end
  local entry_id = call('XADD', stream, '*', unpack(words))
  if marker then
    call('SET', prefix .. ':unique:' .. id, (string.sub(marker, 1, 1) == 'w' and 'w' or '') .. entry_id, 'KEEPTTL')
  end
end

local found = {}
for i = 5, #ARGV do
  local id = ARGV[i]
  local index, marker, official = prefix .. ':didx:' .. id, prefix .. ':unique:' .. id, prefix .. ':dlid:' .. id
  local member = call('MGET', index)[1]
  if not member or not call('ZSCORE', delayed, member) then
    found[#found + 1] = 0
  elseif what == 'postpone' then
    call('ZADD', delayed, now_ms + delay_ms, member)
    call('PEXPIRE', index, ttl_ms)
    -- How long a marker lasts says when its job is due: see find_unique. A window keeps its end.
    local place = call('MGET', marker)[1]
    if place == 'd' then call('PEXPIRE', marker, ttl_ms) end
    if place ~= 'wd' then call('PEXPIRE', official, math.min(math.max(1000, delay_ms) + 3600000, 9e15)) end
    found[#found + 1] = 1
  else
    call('ZREM', delayed, member)
    call('DEL', index)
    if what == 'run' then run(id, member) else call('DEL', marker, official) end
    found[#found + 1] = 1
  end
end

if what == 'postpone' then redis.pcall('PUBLISH', prefix .. ':due', delay_ms) end
return found
