-- Returns nil if a lease is free or ours; else for how many ms another holds it, the name of that holder, and 1 if the lease
-- had no end or one beyond `longest_ms`. Such a lease gets that end: a lease that nobody renews, or a key of another type,
-- blocks the others for no longer.
local function other_leader(lease, holder, longest_ms)
  local kind = redis.call('TYPE', lease).ok
  if kind == 'none' then return nil end
  -- One byte more than ours tells a longer name from it, and a name of megabytes is not read.
  local leader = kind == 'string' and redis.call('GETRANGE', lease, 0, math.max(#holder, 100))
  if leader == holder then return nil end
  local left_ms = redis.call('PTTL', lease)
  if left_ms >= 0 and left_ms <= longest_ms then return left_ms, leader or 'a ' .. kind, 0 end
  redis.call('PEXPIRE', lease, longest_ms)
  return longest_ms, leader or 'a ' .. kind, 1
end
