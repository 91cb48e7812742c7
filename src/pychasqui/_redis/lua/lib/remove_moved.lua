-- Removes entries whose jobs have joined another key, and writes the events of each: `event_words` has where the first and
-- the last word of them stand in ARGV, if there are any. Returns how many events were refused.
local function remove_moved(moved, event_words)
  if #moved == 0 then return 0 end
  redis.call('XACK', stream, group, unpack(moved))
  redis.call('XDEL', stream, unpack(moved))
  local refused, has_events = 0, false
  for _, id in ipairs(moved) do
    local words = event_words[id]
    if words then
      refused, has_events = refused + write_events(events, words[1], words[2]), true
    end
  end
  if has_events then redis.pcall('XTRIM', events, 'MAXLEN', '~', events_max_len) end
  return refused
end
