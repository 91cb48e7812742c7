-- Writes events.
--
-- They are best effort: nothing that matters waits for them. If the first is refused, that is the answer; those that are
-- refused behind it are missing. Sending it twice writes them twice.
--
-- KEYS  events
-- ARGV  max_len, then for each event: how many words, field, value...
-- Returns how many there were
local events, max_len = KEYS[1], ARGV[1]

local write, count, i = redis.call, 0, 2
while i <= #ARGV do
  local words = tonumber(ARGV[i])
  write('XADD', events, '*', unpack(ARGV, i + 1, i + words))
  write, count, i = redis.pcall, count + 1, i + 1 + words
end
redis.pcall('XTRIM', events, 'MAXLEN', '~', max_len)
return count
