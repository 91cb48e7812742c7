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

if what == 'remove' then
  local was_there = redis.call('ZREM', repeats, key) + redis.call('ZREM', paused, key)
  redis.call('DEL', hash)
  return was_there > 0 and 1 or 0
end

local from, to = repeats, paused
if what == 'resume' then from, to = paused, repeats end
local old_score = redis.call('ZSCORE', from, key)
if not old_score then return 0 end
redis.call('ZREM', from, key)
redis.call('ZADD', to, what == 'resume' and score or old_score, key)
if what == 'resume' then redis.pcall('PUBLISH', prefix .. ':repeat:due', tonumber(score) - now_ms) end
return 1
