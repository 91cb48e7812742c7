-- Acks finished entries whose jobs may be the only ones of their id, and lets the next of that id in.
--
-- Atomically: an entry leaves the pending list and the stream together with its job's marker, unless that has a window
-- of its own, or stands for another job by now. Sending it twice changes nothing.
--
-- KEYS  stream
-- ARGV  group, prefix of the queue's keys, then entry id, job id for each entry
-- Returns how many of the entries were still pending
local stream = KEYS[1]
local group, prefix = ARGV[1], ARGV[2]

local acked = 0
for i = 3, #ARGV, 2 do
  local id, marker, index = ARGV[i], prefix .. ':dlid:' .. ARGV[i + 1], prefix .. ':didx:' .. ARGV[i + 1]
  local pending = redis.pcall('XACK', stream, group, id)  -- fails while the group is gone: done it is all the same
  if type(pending) == 'number' then acked = acked + pending end
  redis.call('XDEL', stream, id)
  local place = redis.pcall('GET', marker)
  -- Where official processes had to do with it, the marker may not know where the job is: not in the delayed set.
  if place == id or ((place == '1' or place == 'd') and redis.call('EXISTS', index) == 0) then
    redis.call('DEL', marker)
  end
end
return acked
