-- Returns whether no group has delivered an entry yet.
local function is_unread(entry_id)
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    for i = 1, #group, 2 do
      if group[i] == 'last-delivered-id' and not is_after(entry_id, group[i + 1]) then return false end
    end
  end
  return true
end
