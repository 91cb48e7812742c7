-- Returns what is sent of an entry, and how many bytes of the reply that takes: the fields, or only their size if they are
-- larger than any job may be.
local function bounded_fields(fields, max_entry_bytes)
  local bytes = 0
  for _, word in ipairs(fields) do bytes = bytes + #word end
  if bytes > max_entry_bytes then return bytes, 0 end
  return fields, bytes
end
