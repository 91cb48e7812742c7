-- Acks finished entries whose jobs may be the only ones of their id, and lets the next of that id in.
--
-- Atomically: an entry leaves the pending list and the stream together with its job's marker, unless that has a window
-- of its own, or stands for another job by now. Sending it twice changes nothing. A marker that cannot be removed keeps
-- the place of an entry that is gone, and counts as none.
--
-- KEYS  stream
-- ARGV  group, prefix of the queue's keys, then entry id, job id for each entry
-- Returns how many of the entries were still pending
local stream = KEYS[1]
local group, prefix = ARGV[1], ARGV[2]

-- include lib/refusal.lua
-- include lib/release_id.lua

local refused = refusal('XACK', stream, group, '0-0') or refusal('XDEL', stream, '0-0')
if refused then return refused end

local acked = 0
for i = 3, #ARGV, 2 do
  local id, job_id = ARGV[i], ARGV[i + 1]
  local pending = redis.pcall('XACK', stream, group, id)  -- fails while the group is gone: done it is all the same
  if type(pending) == 'number' then acked = acked + pending end
  redis.call('XDEL', stream, id)
  release_id(prefix, job_id, id)
end
return acked
