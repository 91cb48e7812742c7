-- Stores a repeatable: new, in place of the one with its key, or only its new spec if its times are still the same.
--
-- Atomically: spec, retry override, count and first time are stored together, and only if the stored spec is still the one
-- that the decision was made by. Closes the race between programs that start at the same time: the second sees what the
-- first has stored. Sent twice, the second stores nothing.
--
-- KEYS  repeat, paused, spec (hash of this repeatable)
-- ARGV  key, first score, spec, retry (the spec's SHA-1 and the override; empty: none), channel for due times, the server's
--       time in ms, the spec that was seen (empty: none), keeps (1: it keeps its time, its count and its pause)
-- Returns {1 if it is new else 0, its score, how often it has fired, 1 if it is paused}; {} if another spec is there
local repeats, paused, hash = KEYS[1], KEYS[2], KEYS[3]
local key, score, spec, retry, due_channel, now_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local seen, keeps = ARGV[7], ARGV[8] == '1'
local call = redis.call

-- include lib/refusal.lua
-- include lib/publish.lua

-- Whatever could be refused must be refused before the first write.
local firing_score, paused_score = call('ZSCORE', repeats, key), call('ZSCORE', paused, key)
local fields = call('HMGET', hash, 'spec', 'fired')
local stored = (firing_score or paused_score) and fields[1] or ''
if stored ~= seen then return {} end
local refused = refusal('ZADD', repeats, 'XX', 'GT', '-inf', key)
if refused then return refused end

if keeps then
  call('HSET', hash, 'spec', spec, 'retry', retry)
  if firing_score and paused_score then redis.pcall('ZREM', paused, key) end  -- an official producer stored it: it knows no pauses
  return {0, firing_score or paused_score, fields[2] or '0', firing_score and 0 or 1}
end
call('HSET', hash, 'spec', spec, 'retry', retry, 'fired', '0')
call('ZADD', repeats, score, key)
if paused_score then redis.pcall('ZREM', paused, key) end
publish(due_channel, tonumber(score) - now_ms)
return {(firing_score or paused_score) and 0 or 1, score, '0', 0}
