-- Hands the entries up to `last` that are pending for no consumer to the heir, which counts as having left: about 500 of
-- them, or 4 MiB, in one call. No command returns the id of an entry without its fields, so they
-- are read in small pages, and one by one once they are large. Returns where the next call must go on, nil if this was the
-- end.
local function hand_over(start, last)
  local moved, entries_left, bytes_left, largest = false, most_for_heir(500), 2 ^ 22, 2 ^ 22
  local page_size, page
  repeat
    page_size = 10 * largest <= bytes_left and 10 or 1
    page = redis.call('XRANGE', stream, start, last, 'COUNT', page_size)
    largest = 0
    for _, entry in ipairs(page) do
      local id = entry[1]
      -- One by one: a range may hold entries that were deleted while pending, so a page of it may end before this one.
      if #redis.call('XPENDING', stream, group, id, id, 1) == 0 then
        redis.call('XCLAIM', stream, group, heir, 0, id, 'IDLE', idle_ms, 'RETRYCOUNT', 0, 'FORCE', 'JUSTID')
        moved = true
      end
      local bytes = 0
      for _, word in ipairs(entry[2]) do bytes = bytes + #word end
      bytes_left, largest = bytes_left - bytes, math.max(largest, bytes)
      start = '(' .. id
    end
    entries_left = entries_left - #page
  until #page < page_size or entries_left <= 0 or bytes_left <= 0
  if moved then redis.call('ZADD', workers, 0, heir) end
  if #page < page_size then return nil end
  return start
end
