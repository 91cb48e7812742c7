-- Moves failed jobs from the stream to the delayed set, where they wait for their next run.
--
-- Atomically, for each job: only if its entry is still pending for this consumer, by the delivery that this run began
-- with, it leaves the stream, and only then it joins the delayed set, due by the server's clock. Closes the race with
-- whoever took the entry over, also if it has come back since: a run that lost its entry changes nothing. Sending it
-- twice changes nothing.
--
-- KEYS  stream, delayed
-- ARGV  group, consumer, then entry id, delivery, delay_ms, member for each job
-- A count below that delivery is of a group that was made anew: the entry came again, to the same run.
-- Fails with NOGROUP while the group is gone: it is made anew, and then it shows whose the entry is.
-- Returns how many were rescheduled
local stream, delayed = KEYS[1], KEYS[2]
local group, consumer = ARGV[1], ARGV[2]

-- Whatever could fail must fail before the first entry leaves the stream.
local kind = redis.call('TYPE', delayed).ok
if kind ~= 'none' and kind ~= 'zset' then
  return redis.error_reply('WRONGTYPE ' .. delayed .. ' is a ' .. kind .. ', not a zset')
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local moved = 0
for i = 3, #ARGV, 4 do
  local id, delivery, delay_ms, member = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ARGV[i + 3]
  local pending = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)
  if pending.err and string.find(pending.err, 'NOGROUP', 1, true) then return pending end
  if not pending.err and #pending == 1 and pending[1][4] <= delivery then
    redis.call('XACK', stream, group, id)
    redis.call('XDEL', stream, id)
    redis.call('ZADD', delayed, now_ms + delay_ms, member)
    moved = moved + 1
  end
end
return moved
