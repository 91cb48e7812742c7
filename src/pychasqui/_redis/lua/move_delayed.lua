-- Cancels delayed jobs, changes when they are due, or runs them now. Finds them by their ids.
--
-- Atomically, for each id: the job is moved only if it is still in the delayed set. This closes the race with promotion:
-- exactly one of the two has the job. Sent twice, it does not cancel or run a job twice, and answers 0 for it. If the stream
-- refuses a job, that job and those behind it stay delayed. A key of the job that cannot be deleted stays behind, and counts
-- as missing, because the job that it points at is not in the delayed set. Of a job that is cancelled an event is written if
-- the queue has events. A call ends early once the members that it has found take `max_bytes`.
--
-- KEYS  delayed (sorted set: member -> when it is due, in ms), stream, events
-- ARGV  action (cancel, postpone or run), delay_ms (for postpone), prefix of the queue's keys, kept_ms (how long the keys of a
--       job outlive its time), channel for due times, max_bytes (the last member may go beyond it), events_max_len, then the ids
-- Touches the keys of each job before the first write
-- Returns {answers, error}. The answers are 1 for each id that was found and 0 for each that was not; they are fewer than the
-- ids if the call ended early, and the caller sends the rest again. The error is what the rest was refused with, or empty
local delayed, stream, events = KEYS[1], KEYS[2], KEYS[3]
local action, delay_ms, prefix, kept_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local due_channel, bytes_left, events_max_len, first_id, last_id = ARGV[5], tonumber(ARGV[6]), ARGV[7], 8, 7
local call, pcall = redis.call, redis.pcall

-- include lib/refusal.lua
-- include lib/touch.lua
-- include lib/job_keys.lua
-- include lib/split_member.lua
-- include lib/server_time.lua
-- include lib/longest_ttl.lua
-- include lib/add_entry.lua
-- include lib/point_at_entry.lua
-- include lib/names_entry.lua
-- include lib/postpone.lua
-- include lib/take_out.lua
-- include lib/publish.lua
-- include lib/write_cancelled.lua

-- Reads before the first write. MGET takes a key of another type for a missing one.
local members, job_keys = {}, {}
for i = first_id, #ARGV do
  if bytes_left <= 0 then break end
  members[i], last_id = call('MGET', index_key(ARGV[i]))[1], i
  bytes_left = bytes_left - #(members[i] or '') - 16 * #ARGV[i]  -- each of the job's keys has its id
  append_job_keys(job_keys, ARGV[i])
end
local refused = touch(job_keys) or refusal('ZREMRANGEBYRANK', delayed, 1, 0)
if refused then return refused end

local now_ms = server_time_ms(math.ceil)
local found, why = {}, ''
for i = first_id, last_id do
  local rank = members[i] and call('ZRANK', delayed, members[i])
  local trouble
  if rank and action == 'postpone' then
    trouble = postpone(ARGV[i], members[i], now_ms + delay_ms, delay_ms, kept_ms)
  elseif rank then
    trouble = take_out(ARGV[i], members[i], rank, action == 'run')
  end
  if trouble then
    why = trouble.err
    break
  end
  if rank and action == 'cancel' then write_cancelled(ARGV[i], (split_member(members[i])), now_ms) end
  found[#found + 1] = rank and 1 or 0
end

if action == 'postpone' then publish(due_channel, delay_ms) end
return {found, why}
