-- Adds a batch of jobs of which some are to run later, or to be the only one of their id; at most once, as add does.
--
-- Atomically, for each job: either a job of its id is there already, and nothing is added, or the waiting one gets the
-- new data; or the job joins the stream or, if it is due later by the server's clock, the delayed set, with the index
-- that finds it by its id and the marker that says where it is. Closes the race between several who add one id, delayed
-- or not. A marker whose job has gone from where it was is taken for none: whoever ran it did not know of markers.
--
-- KEYS  stream, ledger (hash: slot -> "number answers"), delayed
-- ARGV  slot, number, ledger_ttl_ms, max_stream_len (0: no bound), needed, prefix of the queue's keys, kept_ms,
--       then for each job: name (may be empty), envelope, id, due ("": now, "+ms": from now, "ms": at that time),
--       only ("": any number of that id, "keep": the first, "replace": the first with the last data, "postpone": the
--       last), window_ms (how long a job keeps others of its id out, 0: until it is done)
--       needed: how many jobs there must be room for, or none is taken; 0: as many as there is room for
-- Returns a letter for each job: n it is new, d another of its id is there, r it has replaced that one, f no room
local stream, ledger, delayed = KEYS[1], KEYS[2], KEYS[3]
local slot, number, ledger_ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local max_stream_len, needed, prefix, kept_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local call = redis.call

local seen = call('HGET', ledger, slot)
if seen then
  local last, answers = string.match(seen, '^(%d+) (%w*)$')
  if tonumber(last) >= number then return answers end
end

-- Whatever could fail must fail before the first job is added.
for key, kind in pairs({[stream] = 'stream', [delayed] = 'zset'}) do
  local found = call('TYPE', key).ok
  if found ~= 'none' and found ~= kind then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. kind)
  end
end

local time = call('TIME')
local now_ms = time[1] * 1000 + math.ceil(time[2] / 1000)  -- never early
local room = math.huge
if max_stream_len > 0 then room = max_stream_len - call('XLEN', stream) end
local is_refused = room < needed
if needed > 0 then room = math.huge end  -- a batch that asks is taken whole
local soonest = math.huge
local longest_ms = 9e15  -- Redis takes no TTL much longer than this

-- Puts a job where it belongs; returns its place: an entry id, "d" for the delayed set, nil if there is no room. One
-- that replaces another needs none.
local function put(name, envelope, id, due_ms, is_only, has_place)
  if due_ms > now_ms then
    local member = struct.pack('<I4', #name) .. name .. envelope
    call('ZADD', delayed, due_ms, member)
    call('SET', prefix .. ':didx:' .. id, member, 'PX', math.min(due_ms - now_ms + kept_ms, longest_ms))
    soonest = math.min(soonest, due_ms)
    return 'd'
  end
  if room < 1 and not has_place then return nil end
  room = room - 1
  local words = {'d', envelope}
  if name ~= '' then words[3], words[4] = 'n', name end
  -- An id of 26 letters, as ours have, does not show that it was given; in UTF-8 it has as many bytes or more.
  if is_only and #id >= 26 then words[#words + 1], words[#words + 2] = 'u', '1' end
  return call('XADD', stream, '*', unpack(words))
end

local function is_after(id, other)
  local ms, sequence = string.match(id, '^(%d+)-(%d+)$')
  local other_ms, other_sequence = string.match(other, '^(%d+)-(%d+)$')
  ms, other_ms = tonumber(ms), tonumber(other_ms)
  return ms > other_ms or (ms == other_ms and tonumber(sequence) > tonumber(other_sequence))
end

-- Whether no group has delivered the entry yet.
local function is_waiting(entry_id)
  for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do
    for i = 1, #group, 2 do
      if group[i] == 'last-delivered-id' and not is_after(entry_id, group[i + 1]) then return false end
    end
  end
  return true
end

-- Takes a job that waits away, for another to stand in its place; returns when it was due, or nil if it does not wait.
local function take_away(place, id)
  if string.find(place, '-', 1, true) then
    if #call('XRANGE', stream, place, place) == 0 or not is_waiting(place) then return nil end
    call('XDEL', stream, place)
    room = room + 1
    return 0
  end
  local member = call('GET', prefix .. ':didx:' .. id)
  local due_ms = member and call('ZSCORE', delayed, member)
  if due_ms then call('ZREM', delayed, member) end
  return due_ms and tonumber(due_ms)
end

-- An entry that is gone was run by somebody who knows nothing of markers. A window stands for itself.
local function is_stale(marker)
  return string.find(marker, '^%d+-') and #call('XRANGE', stream, marker, marker) == 0
end

local function mark(id, place, due_ms, window_ms)
  local sign = window_ms > 0 and 'w' or ''
  local ttl_ms = window_ms > 0 and window_ms or math.min(math.max(0, due_ms - now_ms) + kept_ms, longest_ms)
  call('SET', prefix .. ':dlid:' .. id, sign .. place, 'PX', ttl_ms)
end

local function add(name, envelope, id, due_ms, only, window_ms)
  if only == '' then return put(name, envelope, id, due_ms, false) and 'n' or 'f' end
  local marker = call('GET', prefix .. ':dlid:' .. id)
  if marker and not is_stale(marker) then
    local place = string.gsub(marker, '^w', '')
    local was_due_ms = only ~= 'keep' and take_away(place, id)
    if not was_due_ms then return 'd' end
    if only == 'replace' then due_ms = was_due_ms end
    mark(id, put(name, envelope, id, due_ms, true, true), due_ms, window_ms)
    return 'r'
  end
  local place = put(name, envelope, id, due_ms, true)
  if not place then return 'f' end
  mark(id, place, due_ms, window_ms)
  return 'n'
end

local answers = {}
for i = 8, #ARGV, 6 do
  local due_ms, relative = 0, string.match(ARGV[i + 3], '^%+(%d+)$')
  if relative then due_ms = now_ms + tonumber(relative) elseif ARGV[i + 3] ~= '' then due_ms = tonumber(ARGV[i + 3]) end
  if is_refused then
    answers[#answers + 1] = 'f'
  else
    answers[#answers + 1] = add(ARGV[i], ARGV[i + 1], ARGV[i + 2], due_ms, ARGV[i + 4], tonumber(ARGV[i + 5]))
  end
end

-- Tell promoters that sleep, if the next job is due sooner than the one they know of. They look by themselves, too.
if soonest < math.huge then
  local first = call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
  if tonumber(first[2]) >= soonest then redis.pcall('PUBLISH', prefix .. ':due', soonest - now_ms) end
end

local answer = table.concat(answers)
call('HSET', ledger, slot, ARGV[2] .. ' ' .. answer)
call('PEXPIRE', ledger, ledger_ttl_ms)
return answer
