-- Removes entries whose jobs have joined another key, and writes the events of each: `event_words` has where the first and
-- the last word of them stand in ARGV. Returns how many events were refused.
local function remove_moved(moved, event_words)
  if #moved == 0 then return 0 end
  redis.call('XACK', stream, group, unpack(moved))
  redis.call('XDEL', stream, unpack(moved))
  local refused, has_events = 0, false
  for _, id in ipairs(moved) do
    local first, last = event_words[id][1], event_words[id][2]
    refused = refused + write_events(events, first, last)
    has_events = has_events or first <= last
  end
  if has_events then redis.pcall('XTRIM', events, 'MAXLEN', '~', events_max_len) end
  return refused
end
