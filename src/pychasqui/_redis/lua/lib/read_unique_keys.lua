-- Returns the values of uniqueness keys, false for those that are missing, and the error if one of them is on another
-- node of a cluster. A value that cannot be read counts as missing.
local function read_unique_keys(keys)
  local values = {}
  for first = 1, #keys, 1000 do
    local last = math.min(first + 999, #keys)
    local page = redis.pcall('MGET', unpack(keys, first, last))
    if is_elsewhere(page) then return values, page end
    for i = first, last do values[i] = page[i - first + 1] or false end
  end
  return values, nil
end
