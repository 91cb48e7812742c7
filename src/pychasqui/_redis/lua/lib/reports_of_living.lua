-- Returns what each worker with a lease has reported to rebuild_group: the last entry that it holds, or false.
local function reports_of_living(now_ms)
  local living, found = redis.call('ZRANGEBYSCORE', workers, '(' .. now_ms, '+inf'), {}
  for i, name in ipairs(living) do living[i] = 'of ' .. name end
  for first = 1, #living, 1000 do
    local page = redis.call('HMGET', reports, unpack(living, first, math.min(first + 999, #living)))
    for _, report in ipairs(page) do found[#found + 1] = report end
  end
  return found
end
