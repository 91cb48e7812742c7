-- Returns the members of the delayed set that have been due for the longest: up to `most` of them, until they take
-- `max_bytes`; the last one may go beyond. No command returns the size of a member without the member, so they are read
-- in small pages, and one by one once they are large.
local function read_due(delayed, until_ms, most, max_bytes)
  local due = math.min(most, redis.call('ZCOUNT', delayed, '-inf', until_ms))
  local members, bytes_left, largest = {}, max_bytes, max_bytes
  while #members < due and bytes_left > 0 do
    local page = 16 * largest <= bytes_left and 16 or 1
    local last = math.min(#members + page, due) - 1
    for _, member in ipairs(redis.call('ZRANGE', delayed, #members, last)) do
      if bytes_left <= 0 then break end
      members[#members + 1] = member
      bytes_left = bytes_left - #member
      largest = #members == 1 and #member or math.max(largest, #member)
    end
  end
  return members
end
