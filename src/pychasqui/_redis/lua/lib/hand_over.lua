-- Hands the entries up to `last` that are pending for no consumer to the heir, which counts as having left: about 1,000 of
-- them, or 16 MiB, in one call, which takes 10 ms. Returns where the next call must go on, nil if this was the end.
local function hand_over(start, last)
  local moved, entries_left, bytes_left = false, 1000, 2 ^ 24
  local next_start = nil
  repeat
    local page = redis.call('XRANGE', stream, start, last, 'COUNT', 10)
    local held = {}
    if #page > 0 then
      local pending = redis.call('XPENDING', stream, group, page[1][1], page[#page][1], #page)
      for _, one in ipairs(pending) do held[one[1]] = true end
    end
    for _, entry in ipairs(page) do
      if not held[entry[1]] then
        local words = {heir, 0, entry[1], 'IDLE', idle_ms, 'RETRYCOUNT', 0, 'FORCE', 'JUSTID'}
        redis.call('XCLAIM', stream, group, unpack(words))
        moved = true
      end
      for _, word in ipairs(entry[2]) do bytes_left = bytes_left - #word end
      start = '(' .. entry[1]
    end
    entries_left = entries_left - #page
    if #page == 10 and (entries_left <= 0 or bytes_left <= 0) then next_start = start end
  until #page < 10 or next_start
  if moved then redis.call('ZADD', workers, 0, heir) end
  return next_start
end
