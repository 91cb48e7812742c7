-- Lists the entries that are pending for a worker, so that it finds those whose delivery never reached it.
--
-- Changes nothing, and can be sent again.
--
-- KEYS  stream
-- ARGV  group, consumer, start (the first id, or with a leading "(" the id before it), last (the last id), count, max_bytes
--       (the last entry may go beyond it), max_entry_bytes (of a larger entry only the size is returned)
-- Returns a list of {id, fields or size (false if the entry was deleted), number of deliveries}
local stream = KEYS[1]
local group, consumer, start, last, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local bytes_left, max_entry_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])

-- include lib/bounded_fields.lua

local found = {}
for _, pending in ipairs(redis.call('XPENDING', stream, group, start, last, count, consumer)) do
  if bytes_left <= 0 then break end
  local id, deliveries = pending[1], pending[4]
  local entry = redis.call('XRANGE', stream, id, id)[1]
  local fields, bytes = false, 0
  if entry then fields, bytes = bounded_fields(entry[2], max_entry_bytes) end
  found[#found + 1] = {id, fields, deliveries}
  bytes_left = bytes_left - bytes
end
return found
