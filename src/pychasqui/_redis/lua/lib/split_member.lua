-- Returns the name and the envelope of a member of the delayed set: [length of the name][name][envelope]. The envelope of
-- anything else is empty.
local function split_member(member)
  local size = #member >= 4 and struct.unpack('<I4', member) or 0
  return string.sub(member, 5, 4 + size), string.sub(member, 5 + size)
end
