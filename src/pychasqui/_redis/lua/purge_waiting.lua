-- Removes jobs that wait in the stream and that no group has been given yet.
--
-- Atomically: an entry goes only if it is behind the last one that any group was given, with the marker that keeps
-- others of its id out. Closes the race with workers that read: what they have is theirs. Sending it twice removes more.
--
-- KEYS  stream
-- ARGV  count, prefix of the queue's keys
-- Returns how many were removed
local stream, count, prefix = KEYS[1], ARGV[1], ARGV[2]
local call = redis.call

local kind = call('TYPE', stream).ok
if kind == 'none' then return 0 end
local start, last_ms, last_sequence = '-', -1, -1
for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do
  for i = 1, #group, 2 do
    if group[i] == 'last-delivered-id' then
      local ms, sequence = string.match(group[i + 1], '^(%d+)-(%d+)$')
      ms, sequence = tonumber(ms), tonumber(sequence)
      if ms > last_ms or (ms == last_ms and sequence > last_sequence) then
        last_ms, last_sequence, start = ms, sequence, '(' .. group[i + 1]
      end
    end
  end
end

-- include lib/id_of.lua

local function unmark(id, entry_id)
  local marker, index = prefix .. ':dlid:' .. id, prefix .. ':didx:' .. id
  local place = redis.pcall('GET', marker)
  local is_its_own = place == entry_id or place == 'w' .. entry_id
  -- Where official processes had to do with it, the marker may not know where the job is: not in the delayed set.
  if is_its_own or ((place == '1' or place == 'd') and call('EXISTS', index) == 0) then call('DEL', marker) end
end

local removed = 0
for _, entry in ipairs(call('XRANGE', stream, start, '+', 'COUNT', count)) do
  for i = 1, #entry[2], 2 do
    local id = entry[2][i] == 'd' and id_of(entry[2][i + 1])
    if id then unmark(id, entry[1]) end
  end
  removed = removed + call('XDEL', stream, entry[1])
end
return removed
