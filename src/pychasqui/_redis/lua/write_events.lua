-- Writes events.
--
-- Events are best effort: nothing waits for them. If the first is refused, the call fails; those that are refused behind
-- it are missing. Sent twice, it writes them twice.
--
-- KEYS  events
-- ARGV  max_len, then for each event: number of words, field, value...
-- Returns how many there were
local events = KEYS[1]
local max_len = ARGV[1]

local write, count, i = redis.call, 0, 2
while i <= #ARGV do
  local words = tonumber(ARGV[i])
  write('XADD', events, '*', unpack(ARGV, i + 1, i + words))
  write, count, i = redis.pcall, count + 1, i + 1 + words
end
redis.pcall('XTRIM', events, 'MAXLEN', '~', max_len)
return count
