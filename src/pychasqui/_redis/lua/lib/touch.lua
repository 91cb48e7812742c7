-- Returns whether a reply says that this node of a cluster does not have a key, as while its slot moves. Redis and Valkey
-- say "attempted to access a non local key", and Redis 8 something else if only some of several keys are here.
local function is_elsewhere(reply)
  local why = type(reply) == 'table' and reply.err or ''
  return string.find(why, 'ttempted to access', 1, true) ~= nil or string.find(why, 'rehashing', 1, true) ~= nil
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
