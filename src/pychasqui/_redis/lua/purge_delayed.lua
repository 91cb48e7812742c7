-- Removes delayed jobs, also those that wait for a retry. Those that are due soonest are removed first.
--
-- Atomically: each job is removed together with its keys, so that a promotion finds both or neither. A key that cannot be
-- deleted counts as missing, because its job is not in the delayed set. The keys of a job of the same id that is in the stream
-- stay. Of each job an event is written if the queue has events, for those who wait for it. Sent twice, it removes further
-- jobs.
--
-- KEYS  delayed (sorted set: member -> when it is due, in ms), stream, events
-- ARGV  count, prefix of the queue's keys, max_bytes (the last member may go beyond it), events_max_len
-- Touches the keys of each job before the first write
-- Returns how many jobs were removed
local delayed, stream, events = KEYS[1], KEYS[2], KEYS[3]
local count, prefix, max_bytes, events_max_len = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]

-- include lib/touch.lua
-- include lib/job_keys.lua
-- include lib/id_of.lua
-- include lib/split_member.lua
-- include lib/read_due.lua
-- include lib/names_entry.lua
-- include lib/server_time.lua
-- include lib/write_cancelled.lua

local members, jobs, job_keys = read_due(delayed, '+inf', count, max_bytes), {}, {}
for _, member in ipairs(members) do
  local name, envelope = split_member(member)
  local id = id_of(envelope)
  if id then
    jobs[#jobs + 1] = {id = id, name = name}
    append_job_keys(job_keys, id)
  end
end
local refused = touch(job_keys)
if refused then return refused end

local now_ms = server_time_ms(math.floor)
if #members > 0 then redis.call('ZREMRANGEBYRANK', delayed, 0, #members - 1) end
for number, job in ipairs(jobs) do
  local i = 3 * number - 2
  local location = redis.pcall('MGET', job_keys[i])[1]
  redis.pcall('DEL', unpack(job_keys, names_entry(location) and i + 2 or i, i + 2))
  write_cancelled(job.id, job.name, now_ms)
end
return #members
