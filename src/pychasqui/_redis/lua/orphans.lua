-- Lists what is pending for a worker, so that it can find entries whose delivery never reached it.
--
-- Changes nothing.
--
-- KEYS  stream
-- ARGV  group, consumer, start (exclusive with a leading "("), count
-- Returns a list of {id, fields (false if the entry was deleted), deliveries}
local stream = KEYS[1]
local group, consumer, start, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local found = {}
for _, pending in ipairs(redis.call('XPENDING', stream, group, start, '+', count, consumer)) do
  local id, deliveries = pending[1], pending[4]
  local entry = redis.call('XRANGE', stream, id, id)
  found[#found + 1] = {id, entry[1] and entry[1][2] or false, deliveries}
end
return found
