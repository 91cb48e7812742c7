-- Finds delayed jobs by their ids, and cancels them, moves their time, or runs them at once.
--
-- Atomically, for each id: only if its job is still in the delayed set, something is done to it. Closes the race with
-- promotion: exactly one of the two has the job. Sent twice, what was done is not done again, and so not reported. A key of
-- the job that cannot be written counts as none without its member. A job that the stream refuses stays delayed, and so do
-- those behind it. A call ends when the members that it has found take `max_bytes`.
--
-- KEYS  delayed, stream
-- ARGV  what (cancel, postpone, run), delay_ms (for postpone), prefix of the queue's keys, kept_ms, channel for due times,
--       max_bytes (the last member may go beyond it), then ids
-- Touches the keys of each job
-- Returns {1 for each id that was found and 0 for each that was not, the error that the rest was refused with, or empty}; the
-- ids that there is no number for were not looked at
local delayed, stream = KEYS[1], KEYS[2]
local what, delay_ms, prefix, kept_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local due_channel, bytes_left, first_id, last_id = ARGV[5], tonumber(ARGV[6]), 7, 6
local call, pcall = redis.call, redis.pcall

-- include lib/refusal.lua
-- include lib/touch.lua
-- include lib/job_keys.lua
-- include lib/split_member.lua
-- include lib/server_time.lua
-- include lib/longest_ttl.lua
-- include lib/add_entry.lua
-- include lib/point_at_entry.lua
-- include lib/postpone.lua
-- include lib/take_out.lua

-- Reads before the first write. MGET takes a key of another type for a missing one.
local members, job_keys = {}, {}
for i = first_id, #ARGV do
  if bytes_left <= 0 then break end
  local found = pcall('MGET', index_key(ARGV[i]))
  if found.err then return found end
  members[i], last_id = found[1], i
  bytes_left = bytes_left - #(found[1] or '') - 16 * #ARGV[i]  -- each of the job's keys has its id
  append_job_keys(job_keys, ARGV[i])
end
local refused = touch(job_keys) or refusal('ZREMRANGEBYRANK', delayed, 1, 0) or refusal('ZRANK', delayed, 'none')
if refused then return refused end

local now_ms = server_time_ms(math.ceil)
local found, why = {}, ''
for i = first_id, last_id do
  local rank = members[i] and call('ZRANK', delayed, members[i])
  local trouble
  if rank and what == 'postpone' then
    trouble = postpone(ARGV[i], members[i], now_ms + delay_ms, delay_ms, kept_ms)
  elseif rank then
    trouble = take_out(ARGV[i], members[i], rank, what == 'run')
  end
  if trouble then
    why = trouble.err
    break
  end
  found[#found + 1] = rank and 1 or 0
end

if what == 'postpone' then pcall('PUBLISH', due_channel, delay_ms) end
return {found, why}
