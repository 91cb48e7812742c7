-- Returns an envelope with the time at which its job expires, in its last eight bytes.
local function with_expiry(envelope, expires_ms)
  if expires_ms == 0 then return envelope end
  return string.sub(envelope, 1, -9) .. struct.pack('>I8', now_ms + expires_ms)
end
