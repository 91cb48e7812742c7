-- Removes delayed jobs, those that wait for their next try too, the soonest first.
--
-- Atomically: a member goes together with the index that finds it by its id and the marker that keeps others of its id
-- out. Sending it twice removes more.
--
-- KEYS  delayed
-- ARGV  count, prefix of the queue's keys
-- Returns how many were removed
local delayed, count, prefix = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local call, byte, sub = redis.call, string.byte, string.sub

-- As promote has it.
local function id_of(envelope)
  local array, head, size = byte(envelope, 1, 3)
  if not head or array < 0x93 or array > 0x95 then return nil end
  if head >= 0xa0 and head <= 0xbf then return sub(envelope, 3, head - 0xa0 + 2) end
  if head == 0xd9 and size then return sub(envelope, 4, size + 3) end
  if head == 0xda and #envelope >= 4 then return sub(envelope, 5, size * 256 + byte(envelope, 4) + 4) end
  return nil
end

local members = call('ZRANGE', delayed, 0, count - 1)
for _, member in ipairs(members) do
  local size = #member >= 4 and struct.unpack('<I4', member)
  local id = size and id_of(sub(member, 5 + size))
  if id then call('DEL', prefix .. ':didx:' .. id, prefix .. ':dlid:' .. id) end
  call('ZREM', delayed, member)
end
return #members
