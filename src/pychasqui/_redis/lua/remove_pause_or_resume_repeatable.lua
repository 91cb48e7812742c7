-- Removes, pauses or resumes a repeatable.
--
-- Atomically: afterwards the repeatable is in exactly one of two sets, that of those that fire or that of the paused ones, or
-- it is removed with its spec. This closes the race with the scheduler, which fires only what is in the first set. If it is
-- in both sets, an official producer, which knows no pauses, has stored it again: then it fires. If it is paused and has no
-- spec, an official producer has removed it. Sent twice, the second call finds nothing to do.
--
-- KEYS  repeat (sorted set: key of a repeatable -> when it fires next, in ms), paused (sorted set of the same form), spec
--       (hash of this repeatable)
-- ARGV  action (remove, pause or resume), key, score (for resume: when it fires next), channel for due times, the server's time
--       in ms
-- Returns 1 if the repeatable was there to be removed, paused or resumed, else 0
local repeats, paused, hash = KEYS[1], KEYS[2], KEYS[3]
local action, key, score, due_channel, now_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local call = redis.call

-- include lib/refusal.lua
-- include lib/absent_member.lua
-- include lib/publish.lua

-- Whatever could be refused must be refused before the first write.
local firing_score, paused_score = call('ZSCORE', repeats, key), call('ZSCORE', paused, key)
local has_spec = call('EXISTS', hash) == 1
local refused = refusal('ZREM', repeats, absent_member(repeats))
if refused then return refused end

if action == 'remove' then
  call('DEL', hash)
  call('ZREM', repeats, key)
  call('ZREM', paused, key)
  return (firing_score or (paused_score and has_spec)) and 1 or 0
end

if action == 'pause' then
  if not firing_score then return 0 end
  call('ZADD', paused, firing_score, key)
  call('ZREM', repeats, key)
  return 1
end

if not paused_score then return 0 end
if firing_score or not has_spec then
  call('ZREM', paused, key)
  return 0
end
call('ZADD', repeats, score, key)
call('ZREM', paused, key)
publish(due_channel, tonumber(score) - now_ms)
return 1
