-- Writes the events that stand in ARGV from `first` to `last`, each as the number of its words, field, value... They are
-- best effort: returns how many were refused.
local function write_events(events, first, last)
  local refused = 0
  while first <= last do
    local words = tonumber(ARGV[first])
    local id = redis.pcall('XADD', events, '*', unpack(ARGV, first + 1, first + words))
    if type(id) == 'table' then refused = refused + 1 end
    first = first + 1 + words
  end
  return refused
end
