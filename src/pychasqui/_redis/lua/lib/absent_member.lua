-- Returns a member that a sorted set does not have, to try with it whether ZREM would be refused.
local function absent_member(zset)
  local member = ''
  while redis.call('ZSCORE', zset, member) do member = member .. '-' end
  return member
end
