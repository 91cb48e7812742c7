-- Returns the members of the delayed set that have been due for the longest: up to `most` of them, until they take
-- `max_bytes`; the last one may go beyond. No command returns the size of a member without the member, so they are read
-- in small pages, and one by one once they are large.
local function read_due(delayed, until_ms, most, max_bytes)
  local due = math.min(most, redis.call('ZCOUNT', delayed, '-inf', until_ms))
  local members, count, bytes_left, largest = {}, 0, max_bytes, 0
  while count < due and bytes_left > 0 do
    local size = count > 0 and 16 * largest <= bytes_left and 16 or 1
    local page = redis.call('ZRANGE', delayed, count, math.min(count + size, due) - 1)
    for i = 1, #page do
      if bytes_left <= 0 then break end
      local bytes = #page[i]
      count, bytes_left = count + 1, bytes_left - bytes
      members[count] = page[i]
      if bytes > largest then largest = bytes end
    end
  end
  return members
end
