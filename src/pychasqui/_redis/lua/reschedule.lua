-- Moves failed jobs from the stream to the delayed set, where they wait for their next run, and writes their events.
--
-- Atomically, for each job: only if its entry is still pending for this consumer, by the delivery that this run began with,
-- the job joins the delayed set, due by the server's clock, and leaves the stream. While it waits it can be found by its id.
-- This closes the race with a worker that has taken the entry over, also if the entry has come back since: a run that has
-- lost its entry changes nothing. Sent twice, it changes nothing. A uniqueness key that cannot be written points at an entry
-- that is gone, and counts as missing. Keys that belong to another job of the same id stay as they are: this one is not found
-- by its id then. Events are best effort. A job that cancel has left a note about stays as it is: it does not run again.
--
-- KEYS  stream, delayed (sorted set: member -> when it is due, in ms), events, reports (hash of rebuild_group), notes (of
--       cancel)
-- ARGV  group, consumer, prefix of the queue's keys, kept_ms (how long the keys of a job outlive its time), events_max_len,
--       then for each job: entry id, delivery, delay_ms, member, job id, may_be_unique (1: it may be the only one of its id),
--       number of words of its events, then for each event: number of words, field, value...
-- Touches the keys of each job before the first write
-- Fails with NOGROUP while the group is missing or not complete, if an entry is not pending for this consumer: once the group
-- is complete, it shows whose the entry is
-- Returns {answers, error, refused events}. The answers are a string with a character for each job: 1 it was moved, 0 its
-- entry is not this run's any more, c it is cancelled and stays as it was, x it was refused and stays as it was. Then the
-- error of the last refusal, or empty, and how many events were refused
local stream, delayed, events, reports, notes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group, consumer, prefix, kept_ms, events_max_len = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local call, pcall = redis.call, redis.pcall

-- include lib/refusal.lua
-- include lib/touch.lua
-- include lib/job_keys.lua
-- include lib/is_held.lua
-- include lib/is_after.lua
-- include lib/is_cancelled.lua
-- include lib/unfinished_group.lua
-- include lib/server_time.lua
-- include lib/longest_ttl.lua
-- include lib/is_index_of_other.lua
-- include lib/is_beside_other.lua
-- include lib/point_at_delayed.lua
-- include lib/write_events.lua
-- include lib/remove_moved.lua

local has_notes = call('EXISTS', notes) == 1
local ours, answers, job_keys, event_words, has_lost, i = {}, {}, {}, {}, false, 6
while i <= #ARGV do
  local id, words = ARGV[i], tonumber(ARGV[i + 6])
  local held, trouble = is_held(stream, group, consumer, id, tonumber(ARGV[i + 1]))
  if trouble then return trouble end
  local cancelled, unknown
  if held and has_notes then cancelled, unknown = is_cancelled(notes, id, ARGV[i + 4]) end
  if unknown then return unknown end
  if cancelled then
    answers[#answers + 1] = 'c'
  elseif held and not ours[id] then
    ours[id] = i
    if words > 0 then event_words[id] = {i + 7, i + 6 + words} end
    answers[#answers + 1] = id
    if ARGV[i + 5] == '1' then append_job_keys(job_keys, ARGV[i + 4]) else job_keys[#job_keys + 1] = index_key(ARGV[i + 4]) end
  else
    answers[#answers + 1], has_lost = '0', true
  end
  i = i + 7 + words
end

-- XACK comes first: it needs no memory, and once a script has written, the server refuses it nothing for want of memory.
local refused = has_lost and unfinished_group(reports, group)
  or touch(job_keys)
  or refusal('XACK', stream, group, '0-0')
  or refusal('XDEL', stream, '0-0')
  or refusal('ZADD', delayed, 'XX', 'GT', '-inf', 'none')
if refused then return refused end

local now_ms = server_time_ms(math.ceil)
local moved, why = {}, ''
for n, id in ipairs(answers) do
  i = ours[id]
  if i then
    local delay_ms, member, job_id = tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4]
    local ttl_ms = math.min(delay_ms + kept_ms, longest_ttl_ms)
    local may_be_unique = ARGV[i + 5] == '1'
    local has_other = may_be_unique and is_beside_other(job_id, id, member)
    local index = not has_other and pcall('SET', index_key(job_id), member, 'PX', ttl_ms)
    if index and index.err then
      answers[n], why = 'x', index.err
    else
      call('ZADD', delayed, now_ms + delay_ms, member)
      if may_be_unique and not has_other then point_at_delayed(job_id, id, ttl_ms) end
      answers[n] = '1'
      moved[#moved + 1] = id
    end
  end
end
return {table.concat(answers), why, remove_moved(moved, event_words)}
