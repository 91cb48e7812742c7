-- Removes jobs that wait in the stream and that no group has been given yet.
--
-- Atomically: an entry goes only if it is behind the last one that any group was given, with the marker that keeps
-- others of its id out. Closes the race with workers that read: what they have is theirs. A marker that cannot be removed
-- keeps the place of an entry that is gone, and counts as none. Sending it twice removes more.
--
-- KEYS  stream
-- ARGV  count, prefix of the queue's keys, newest (the last entry that may go)
-- Returns how many were removed
local stream, count, prefix, newest = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local call = redis.call

local kind = call('TYPE', stream).ok
if kind == 'none' then return 0 end

-- include lib/is_after.lua

local last = '0-0'
for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do
  for i = 1, #group, 2 do
    if group[i] == 'last-delivered-id' and is_after(group[i + 1], last) then last = group[i + 1] end
  end
end

-- include lib/id_of.lua

-- include lib/release_id.lua

-- A job that is removed keeps nobody out, not even for a window.
local function remove_marker(id, entry_id)
  release_id(prefix, id, entry_id)
  local marker = prefix .. ':unique:' .. id
  if redis.pcall('GET', marker) == 'w' .. entry_id then redis.pcall('DEL', marker) end
end

local removed = 0
for _, entry in ipairs(call('XRANGE', stream, '(' .. last, newest, 'COUNT', count)) do
  removed = removed + call('XDEL', stream, entry[1])
  for i = 1, #entry[2], 2 do
    local id = entry[2][i] == 'd' and id_of(entry[2][i + 1])
    if id then remove_marker(id, entry[1]) end
  end
end
return removed
