-- Returns whether a reply says that this node of a cluster does not have a key, as while its slot moves.
local function is_elsewhere(reply)
  return type(reply) == 'table' and reply.err ~= nil and string.find(reply.err, 'attempted to', 1, true) ~= nil
end

-- Touches keys that are not in KEYS, before the first write. Returns the error if one of them is on another node: the
-- script must then return it, so that the whole call is refused. Other errors show where the keys are used.
local function touch(keys)
  for first = 1, #keys, 1000 do
    local reply = redis.pcall('EXISTS', unpack(keys, first, math.min(first + 999, #keys)))
    if is_elsewhere(reply) then return reply end
  end
  return nil
end
