-- Removes a job that waits, once another stands in its place.
local function remove_waiting(found)
  if found.entry then
    redis.call('XDEL', stream, found.entry)
  else
    redis.call('ZREM', delayed, found.member)
  end
end

-- Whether no worker has been given the job that find_unique found: it is delayed, or in the stream behind the last entry
-- that any group has delivered.
local function is_waiting(found)
  if not found.entry then return found.member ~= nil end
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    for i = 1, #group, 2 do
      if group[i] == 'last-delivered-id' and not is_after(found.entry, group[i + 1]) then return false end
    end
  end
  return true
end
