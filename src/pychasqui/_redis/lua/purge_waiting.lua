-- Removes jobs that wait in the stream: entries that no group has delivered yet.
--
-- Atomically: an entry is removed only if it is behind the last one that any group has delivered, and with it the uniqueness
-- key of its job. This closes the race with workers that read: what was delivered to them stays theirs. A uniqueness key that
-- cannot be deleted points at an entry that is gone, and counts as missing. Of each job an event is written if the queue has
-- events, for those who wait for it. Sent twice, it removes further entries.
--
-- KEYS  stream, delayed, events
-- ARGV  count, prefix of the queue's keys, max_bytes (the last entry may go beyond it), newest (the last id that may be
--       removed), events_max_len
-- Touches the keys of each job before the first write
-- Returns how many entries were removed
local stream, delayed, events = KEYS[1], KEYS[2], KEYS[3]
local count, prefix, max_bytes, newest = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]
local events_max_len = ARGV[5]
local call = redis.call

-- include lib/touch.lua
-- include lib/job_keys.lua
-- include lib/is_after.lua
-- include lib/id_of.lua
-- include lib/read_waiting.lua
-- include lib/release_id.lua
-- include lib/server_time.lua
-- include lib/write_cancelled.lua

if call('TYPE', stream).ok == 'none' then return 0 end

local last = '0-0'
for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do
  for i = 1, #group, 2 do
    if group[i] == 'last-delivered-id' and is_after(group[i + 1], last) then last = group[i + 1] end
  end
end

local entries, jobs, job_keys = read_waiting('(' .. last, newest, count, max_bytes), {}, {}
for _, entry in ipairs(entries) do
  local id, name = nil, ''
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'n' then name = entry[2][i + 1] end
    if entry[2][i] == 'd' then id = id_of(entry[2][i + 1]) end
  end
  if id then
    jobs[#jobs + 1] = {id = id, name = name, entry_id = entry[1]}
    append_job_keys(job_keys, id)
  end
end
local refused = touch(job_keys)
if refused then return refused end

local removed, now_ms = 0, server_time_ms(math.floor)
for _, entry in ipairs(entries) do removed = removed + call('XDEL', stream, entry[1]) end
for _, job in ipairs(jobs) do
  release_id(job.id, job.entry_id)
  -- A job that is removed keeps no other out, not even for a window.
  local unique = unique_key(job.id)
  if redis.pcall('GET', unique) == 'w' .. job.entry_id then redis.pcall('DEL', unique) end
  write_cancelled(job.id, job.name, now_ms)
end
return removed
