-- Returns the values of those uniqueness keys that exist, by their place among `keys`, and the error if one of them is on
-- another node of a cluster. A value that cannot be read counts as missing.
-- Hot: most jobs have no such key, and EXISTS takes 0.2 us a key less than MGET.
local function read_unique_keys(keys)
  local values = {}
  for first = 1, #keys, 1000 do
    local last = math.min(first + 999, #keys)
    local existing = redis.pcall('EXISTS', unpack(keys, first, last))
    if is_elsewhere(existing) then return values, existing end
    if existing ~= 0 then
      local page = redis.pcall('MGET', unpack(keys, first, last))
      for i = first, last do values[i] = page[i - first + 1] end
    end
  end
  return values, nil
end
