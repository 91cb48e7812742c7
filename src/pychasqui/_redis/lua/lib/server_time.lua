-- Returns the server's time in ms. `round` is math.floor where a time is compared, and math.ceil where one is stored:
-- rounded up, no job is due early.
local function server_time_ms(round)
  local time = redis.call('TIME')
  return time[1] * 1000 + round(time[2] / 1000)
end
