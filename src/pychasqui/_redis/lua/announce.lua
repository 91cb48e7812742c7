-- Writes events.
--
-- They are best effort: nothing that matters waits for them. Sending it twice writes them twice.
--
-- KEYS  events
-- ARGV  max_len, then for each event: how many words, field, value...
-- Returns how many were written
local events, max_len = KEYS[1], ARGV[1]

local written, i = 0, 2
while i <= #ARGV do
  local words = tonumber(ARGV[i])
  redis.call('XADD', events, '*', unpack(ARGV, i + 1, i + words))
  written, i = written + 1, i + 1 + words
end
redis.call('XTRIM', events, 'MAXLEN', '~', max_len)
return written
