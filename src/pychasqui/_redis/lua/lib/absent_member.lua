-- Returns a member that a sorted set does not have: ZREM of it changes nothing, and shows whether ZREM is refused.
local function absent_member(zset)
  local member = ''
  while redis.call('ZSCORE', zset, member) do member = member .. '-' end
  return member
end
