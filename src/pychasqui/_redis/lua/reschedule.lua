-- Moves failed jobs from the stream to the delayed set, where they wait for their next run.
--
-- Atomically, for each job: only if its entry is still pending for this consumer, by the delivery that this run began
-- with, it leaves the stream, and only then it joins the delayed set, due by the server's clock. Closes the race with
-- whoever took the entry over, also if it has come back since: a run that lost its entry changes nothing. Sending it
-- twice changes nothing. The job can be found by its id while it waits.
--
-- KEYS  stream, delayed
-- ARGV  group, consumer, prefix of the queue's keys, kept_ms,
--       then entry id, delivery, delay_ms, member, job id, is_marked (1: it may be the only one of its id) for each job
-- A count below that delivery is of a group that was made anew: the entry came again, to the same run.
-- Fails with NOGROUP while the group is gone: it is made anew, and then it shows whose the entry is.
-- Returns how many were rescheduled
local stream, delayed = KEYS[1], KEYS[2]
local group, consumer, prefix, kept_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

-- Whatever could fail must fail before the first entry leaves the stream.
local kind = redis.call('TYPE', delayed).ok
if kind ~= 'none' and kind ~= 'zset' then
  return redis.error_reply('WRONGTYPE ' .. delayed .. ' is a ' .. kind .. ', not a zset')
end

-- include lib/mark_delayed.lua

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.ceil(time[2] / 1000)  -- never early
local longest_ms = 9e15  -- Redis takes no TTL much longer than this
local ours, ids = {}, {}
for i = 5, #ARGV, 6 do
  local id, delivery = ARGV[i], tonumber(ARGV[i + 1])
  local pending = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)
  if pending.err and string.find(pending.err, 'NOGROUP', 1, true) then return pending end
  if not pending.err and #pending == 1 and pending[1][4] <= delivery and not ours[id] then
    ours[id] = i
    ids[#ids + 1] = id
  end
end
if #ids == 0 then return 0 end

redis.call('XACK', stream, group, unpack(ids))
redis.call('XDEL', stream, unpack(ids))
for _, id in ipairs(ids) do
  local i = ours[id]
  local delay_ms, member, job_id, is_marked = tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  redis.call('ZADD', delayed, now_ms + delay_ms, member)
  local ttl_ms = math.min(delay_ms + kept_ms, longest_ms)
  redis.call('SET', prefix .. ':didx:' .. job_id, member, 'PX', ttl_ms)
  if is_marked == '1' then mark_delayed(prefix, job_id, id, ttl_ms) end
end
return #ids
