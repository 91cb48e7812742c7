-- Fires repeatables: adds their jobs and moves each on to its next time.
--
-- Atomically, for each repeatable: only if its score and its spec are still what the decision was made by, its jobs join
-- the stream, the fires are counted, and it gets its next score, or is gone if there is none. Closes the race between
-- a leader that was held up and its successor, and with an upsert. Sending it twice fires nothing twice.
--
-- KEYS  stream, repeat
-- ARGV  prefix of the queue's keys, then for each repeatable: key, score, spec, next score (empty: none), name of its
--       jobs (may be empty), how many, envelope...
-- Returns 1 for each repeatable that was moved on, else 0
local stream, repeats, prefix = KEYS[1], KEYS[2], ARGV[1]
local call = redis.call

-- Whatever could fail must fail before the first job is added.
local kind = call('TYPE', stream).ok
if kind ~= 'none' and kind ~= 'stream' then
  return redis.error_reply('WRONGTYPE ' .. stream .. ' is a ' .. kind .. ', not a stream')
end

local moved, i = {}, 2
while i <= #ARGV do
  local key, score, spec, next_score, name, jobs =
    ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], tonumber(ARGV[i + 5])
  local hash = prefix .. ':repeat:spec:' .. key
  local is_same = tonumber(call('ZSCORE', repeats, key) or -1) == score and call('HGET', hash, 'spec') == spec
  if is_same then
    for j = i + 6, i + 5 + jobs do
      if name == '' then call('XADD', stream, '*', 'd', ARGV[j]) else call('XADD', stream, '*', 'd', ARGV[j], 'n', name) end
    end
    if next_score == '' then
      call('ZREM', repeats, key)
      call('DEL', hash)
    else
      if jobs > 0 then call('HINCRBY', hash, 'fired', jobs) end
      call('ZADD', repeats, next_score, key)
    end
  end
  moved[#moved + 1] = is_same and 1 or 0
  i = i + 6 + jobs
end
return moved
