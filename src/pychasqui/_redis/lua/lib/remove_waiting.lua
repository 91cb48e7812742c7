-- Removes a waiting job that another has replaced.
local function remove_waiting(found)
  if found.entry then
    redis.call('XDEL', stream, found.entry)
  else
    redis.call('ZREM', delayed, found.member)
  end
end

-- Returns whether the job that find_unique found is still waiting: it is delayed, or in the stream behind the last entry
-- that any group has delivered.
local function is_waiting(found)
  if not found.entry then return found.member ~= nil end
  return is_unread(found.entry)
end
