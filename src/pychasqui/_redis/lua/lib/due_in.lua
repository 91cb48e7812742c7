-- Returns in how many ms the member of a ZRANGE WITHSCORES is due, below 0 if it has been due for that long; nil if there
-- is none. A score may be infinite.
local function due_in_ms(scored, now_ms)
  return scored[2] and math.max(-9e15, math.min(tonumber(scored[2]) - now_ms, 9e15))
end
