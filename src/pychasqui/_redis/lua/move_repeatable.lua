-- Removes, pauses or resumes a repeatable.
--
-- Atomically: it is in one of the two sets, those that fire and those that are paused, or gone with its spec. Sent
-- twice, it finds nothing to do.
--
-- KEYS  repeat, paused, spec (hash of this repeatable)
-- ARGV  what (remove, pause, resume), key, score (for resume: when it fires next), prefix of the queue's keys,
--       the server's time in ms
-- Returns 1 if it was there, else 0
local repeats, paused, hash = KEYS[1], KEYS[2], KEYS[3]
local what, key, score, prefix, now_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

-- Whatever could fail must fail before the first write.
local firing_score, paused_score = redis.call('ZSCORE', repeats, key), redis.call('ZSCORE', paused, key)

if what == 'remove' then
  redis.call('ZREM', repeats, key)
  redis.call('ZREM', paused, key)
  redis.call('DEL', hash)
  return (firing_score or paused_score) and 1 or 0
end

if what == 'pause' then
  if not firing_score then return 0 end
  redis.call('ZREM', repeats, key)
  redis.call('ZADD', paused, firing_score, key)
  return 1
end

if not paused_score then return 0 end
redis.call('ZREM', paused, key)
redis.call('ZADD', repeats, score, key)
redis.pcall('PUBLISH', prefix .. ':repeat:due', tonumber(score) - now_ms)
return 1
