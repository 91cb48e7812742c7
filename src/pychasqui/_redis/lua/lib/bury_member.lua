-- Moves what is no job from the delayed set to the dead letters. Returns the id of the letter, or the error.
local refused_members = {}
local function bury_member(member)
  local id =
    redis.pcall('XADD', dead, '*', 'd', member, 'source_id', '', 'reason', 'malformed', 'detail', 'not a delayed member')
  if type(id) == 'table' then refused_members[#refused_members + 1] = member end
  return id
end

-- Lets members that the dead letters have refused be due again in a minute, if they are all that a call could read and others
-- are due behind them. Returns how many of them stay first.
local function put_off_if_in_the_way(read)
  if #refused_members < read or redis.call('ZCOUNT', delayed, '-inf', now_ms) <= read then return #refused_members end
  for _, member in ipairs(refused_members) do redis.pcall('ZADD', delayed, 'XX', now_ms + 60000, member) end
  return 0
end
