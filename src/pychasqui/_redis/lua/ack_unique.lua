-- Acks finished entries whose jobs may be the only ones of their id, and lets the next job of that id in.
--
-- Atomically: an entry leaves the pending list and the stream together with its job's uniqueness key, unless that key has
-- a window of its own or belongs to another job by now. No job of that id is refused because of one that has ended. Sent
-- twice, it changes nothing. A uniqueness key that cannot be deleted points at an entry that is gone, and counts as none.
--
-- KEYS  stream, delayed
-- ARGV  group, prefix of the queue's keys, then entry id, job id for each entry
-- Touches the keys of each job
-- Returns how many of the entries were still pending
local stream, delayed = KEYS[1], KEYS[2]
local group, prefix = ARGV[1], ARGV[2]

-- include lib/refusal.lua
-- include lib/touch.lua
-- include lib/job_keys.lua
-- include lib/release_id.lua

local job_keys = {}
for i = 3, #ARGV, 2 do append_job_keys(job_keys, ARGV[i + 1]) end
local refused = touch(job_keys) or refusal('XACK', stream, group, '0-0') or refusal('XDEL', stream, '0-0')
if refused then return refused end

local acked = 0
for i = 3, #ARGV, 2 do
  local id, job_id = ARGV[i], ARGV[i + 1]
  acked = acked + redis.call('XACK', stream, group, id)  -- 0 while the group is missing: the job is done anyway
  redis.call('XDEL', stream, id)
  release_id(job_id, id)
end
return acked
