-- Returns how many entries one call may give to the heir. Redis 8.6 keeps pending entries in the order of their delivery:
-- for one that is to look idle it walks past all that were delivered later, 5 ns each. Those of the heir look idle, too.
local function most_for_heir(most)
  local summary = redis.call('XPENDING', stream, group)
  local later = summary[1]
  for _, holder in ipairs(summary[4] or {}) do
    if holder[1] == heir then later = later - holder[2] end
  end
  return math.max(1, math.min(most, math.floor(1e6 / math.max(1, later))))
end
