-- Returns whether an entry id comes after another. They are compared as text without leading zeros: a sequence number may be
-- too large for a Lua number.
local function is_after(id, other)
  local ms, sequence = string.match(id, '^(%d+)-(%d+)$')
  local other_ms, other_sequence = string.match(other, '^(%d+)-(%d+)$')
  if ms == other_ms then ms, other_ms = sequence, other_sequence end
  return #ms > #other_ms or (#ms == #other_ms and ms > other_ms)
end
