-- Stores a repeatable, new or in the place of the one with its key, as if it had never fired.
--
-- Atomically: spec, retry override and first time belong together. Sending it twice changes nothing more.
--
-- KEYS  repeat, paused, spec (hash of this repeatable)
-- ARGV  key, first score, spec, retry (empty: none), prefix of the queue's keys, the server's time in ms
-- Returns 1 if it is new, else 0
local repeats, paused, hash = KEYS[1], KEYS[2], KEYS[3]
local key, score, spec, retry, prefix, now_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

redis.call('ZREM', paused, key)
redis.call('HSET', hash, 'spec', spec)
redis.call('HDEL', hash, 'fired', 'retry')
if retry ~= '' then redis.call('HSET', hash, 'retry', retry) end
local added = redis.call('ZADD', repeats, score, key)
redis.pcall('PUBLISH', prefix .. ':repeat:due', tonumber(score) - now_ms)
return added
