-- Removes delayed jobs, those that wait for their next try too, the soonest first.
--
-- Atomically: a member goes together with the index that finds it by its id and the marker that keeps others of its id
-- out. One of these that cannot be removed counts as none without its member. Sending it twice removes more.
--
-- KEYS  delayed
-- ARGV  count, prefix of the queue's keys
-- Returns how many were removed
local delayed, count, prefix = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local call, sub = redis.call, string.sub

-- include lib/id_of.lua

local members = call('ZRANGE', delayed, 0, count - 1)
if #members > 0 then call('ZREMRANGEBYRANK', delayed, 0, #members - 1) end
for _, member in ipairs(members) do
  local size = #member >= 4 and struct.unpack('<I4', member)
  local id = size and id_of(sub(member, 5 + size))
  if id then
    redis.pcall('DEL', prefix .. ':didx:' .. id, prefix .. ':unique:' .. id, prefix .. ':dlid:' .. id)
  end
end
return #members
