-- Returns an error while the group exists and rebuild_group has not completed it, else nil: what a worker holds may not be
-- pending for it yet, and does not count as lost.
local function unfinished_group(reports, group)
  local start = redis.pcall('HGET', reports, 'start')
  if type(start) ~= 'string' or start == '' then return nil end
  return redis.error_reply('NOGROUP rebuild_group has not completed ' .. group)
end
