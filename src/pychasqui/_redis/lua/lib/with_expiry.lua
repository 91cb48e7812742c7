-- Returns an envelope with the time at which its job expires, in its last eight bytes. A Lua number holds it exactly, but not
-- all integers of eight bytes, so it is written in two halves.
local function with_expiry(envelope, expires_ms)
  if expires_ms == 0 then return envelope end
  local at_ms = now_ms + expires_ms
  local high = math.floor(at_ms / 2 ^ 32)
  return string.sub(envelope, 1, -9) .. struct.pack('>I4I4', high, at_ms - high * 2 ^ 32)
end
