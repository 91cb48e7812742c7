-- Returns the job id in an envelope that is an array with a str of up to 65,535 bytes in front, as every known producer
-- writes it; nil for anything else.
local byte, sub = string.byte, string.sub
local function id_of(envelope)
  local array, head, size = byte(envelope, 1, 3)
  if not head or array < 0x93 or array > 0x95 then return nil end
  if head >= 0xa0 and head <= 0xbf then return sub(envelope, 3, head - 0xa0 + 2) end
  if head == 0xd9 and size then return sub(envelope, 4, size + 3) end
  if head == 0xda and #envelope >= 4 then return sub(envelope, 5, size * 256 + byte(envelope, 4) + 4) end
  return nil
end
