-- Returns the first entries of a range of the stream: up to `most` of them, until they take `max_bytes`; the last one may go
-- beyond. No command returns the size of an entry without its fields, so they are read in small pages, and one by one once
-- they are large.
local function read_waiting(start, last, most, max_bytes)
  local entries, bytes_left, largest = {}, max_bytes, max_bytes
  local size, page
  repeat
    size = math.min(10 * largest <= bytes_left and 10 or 1, most - #entries)
    page = redis.call('XRANGE', stream, start, last, 'COUNT', size)
    largest = 0
    for _, entry in ipairs(page) do
      if bytes_left <= 0 then break end
      local bytes = 0
      for _, word in ipairs(entry[2]) do bytes = bytes + #word end
      bytes_left, largest = bytes_left - bytes, math.max(largest, bytes)
      entries[#entries + 1], start = entry, '(' .. entry[1]
    end
  until #page < size or #entries >= most or bytes_left <= 0
  return entries
end
