-- Reads new entries for a consumer until they take `max_bytes`. XREADGROUP alone is bounded only by the number of entries.
--
-- Atomically: the entries that it returns, and no others, are pending for this consumer, as after XREADGROUP. If the reply is
-- lost, list_pending finds them. Sent twice, it reads the entries that follow.
--
-- KEYS  stream
-- ARGV  group, consumer, count, max_bytes (the last entry may go beyond it), max_entry_bytes (of a larger entry only the size
--       is returned)
-- Fails with NOGROUP while the group is missing
-- Returns a list of {id, fields or size}
local stream = KEYS[1]
local group, consumer, count = ARGV[1], ARGV[2], tonumber(ARGV[3])
local bytes_left, max_entry_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])

-- include lib/bounded_fields.lua

local read = {}
while #read < count and bytes_left > 0 do
  local reply = redis.pcall('XREADGROUP', 'GROUP', group, consumer, 'COUNT', 1, 'STREAMS', stream, '>')
  if reply and reply.err and #read == 0 then return reply end
  if not reply or reply.err then break end
  local entry = reply[1][2][1]
  local fields, bytes = bounded_fields(entry[2], max_entry_bytes)
  read[#read + 1] = {entry[1], fields}
  bytes_left = bytes_left - bytes
end
return read
