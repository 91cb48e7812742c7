-- Who else holds a lease. Returns nil if it is free or ours; else for how many ms another holds it, that one's name, and 1
-- if its lease had no end or one beyond `longest_ms`. Such a lease gets that end: one that nobody renews, or a key of
-- another type, holds nobody up for longer.
local function other_leader(lease, holder, longest_ms)
  local kind = redis.call('TYPE', lease).ok
  if kind == 'none' then return nil end
  -- A byte more than ours tells a longer name from it, and a name of megabytes stays where it is.
  local leader = kind == 'string' and redis.call('GETRANGE', lease, 0, math.max(#holder, 100))
  if leader == holder then return nil end
  local left_ms = redis.call('PTTL', lease)
  if left_ms >= 0 and left_ms <= longest_ms then return left_ms, leader or 'a ' .. kind, 0 end
  redis.call('PEXPIRE', lease, longest_ms)
  return longest_ms, leader or 'a ' .. kind, 1
end
