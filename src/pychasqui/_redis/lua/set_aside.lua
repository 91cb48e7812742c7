-- Moves repeatables that cannot be fired to the dead letters, with their bytes.
--
-- Atomically, for each: only if its score and its spec are still what was seen it goes, and only then it joins the dead
-- letters. A key that holds something else than a spec goes as one with an empty spec. Sending it twice changes nothing.
--
-- KEYS  repeat, dead letters
-- ARGV  prefix of the queue's keys, then key, score, spec, detail for each
-- Returns how many were moved
local repeats, dead, prefix = KEYS[1], KEYS[2], ARGV[1]
local call = redis.call

local kind = call('TYPE', dead).ok
if kind ~= 'none' and kind ~= 'stream' then
  return redis.error_reply('WRONGTYPE ' .. dead .. ' is a ' .. kind .. ', not a stream')
end

local moved = 0
for i = 2, #ARGV, 4 do
  local key, score, spec, detail = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3]
  local hash = prefix .. ':repeat:spec:' .. key
  local stored = redis.pcall('HGET', hash, 'spec')
  if type(stored) == 'table' then stored = '' end
  if tonumber(call('ZSCORE', repeats, key) or -1) == score and stored == spec then
    call('ZREM', repeats, key)
    call('DEL', hash)
    call('XADD', dead, '*', 'd', spec, 'source_id', '', 'reason', 'malformed', 'detail', detail)
    moved = moved + 1
  end
end
return moved
