-- Moves jobs that cannot succeed from the stream to the dead letters, and writes their events. Cancelled jobs have no letter.
--
-- Atomically, for each job: only if its entry is still pending for this consumer, by the delivery that this run began with,
-- it joins the dead letters and leaves the stream. Closes the same race as reschedule. Sent twice, it changes nothing. What
-- the bound on the dead letters pushes out is counted if it can be; uniqueness keys, notes of cancel and events are best
-- effort, as in reschedule.
--
-- KEYS  stream, dead letters, counter of dropped dead letters, events, delayed, reports (of rebuild_group), notes (of cancel)
-- ARGV  group, consumer, max_len (0: no bound), prefix of the queue's keys, events_max_len, then for each job: entry id,
--       delivery, job id (empty: it is certainly not the only one of its id), number of words of its dead letter (0: it
--       gets none), number of words of its events, field, value... of the dead letter, then each event: number of words,
--       field, value...
--       A dead letter whose first field is empty gets the entry's own payload and name there.
-- Touches the keys of each job with an id
-- Fails with NOGROUP while the group is missing or not complete: once it is, it shows whose the entry is
-- Returns {answers, error, refused events}, as reschedule does
local stream, dead, dropped, events, delayed, reports = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local notes = KEYS[7]
local group, consumer, max_len, prefix, events_max_len = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local pcall = redis.pcall

-- include lib/refusal.lua
-- include lib/touch.lua
-- include lib/job_keys.lua
-- include lib/is_held.lua
-- include lib/unfinished_group.lua
-- include lib/release_id.lua
-- include lib/dead_letter.lua
-- include lib/write_events.lua
-- include lib/remove_moved.lua

local ours, answers, letters, job_keys, event_words, has_lost, i = {}, {}, {}, {}, {}, false, 6
while i <= #ARGV do
  local id, job_id, first_event = ARGV[i], ARGV[i + 2], i + 5 + tonumber(ARGV[i + 3])
  local last_event = first_event - 1 + tonumber(ARGV[i + 4])
  local held, trouble = is_held(stream, group, consumer, id, tonumber(ARGV[i + 1]))
  if trouble then return trouble end
  if held and not ours[id] then
    ours[id] = job_id
    if first_event <= last_event then event_words[id] = {first_event, last_event} end
    letters[id] = ARGV[i + 3] ~= '0' and dead_letter(stream, id, i + 5, first_event - 1)
    if job_id ~= '' then append_job_keys(job_keys, job_id) end
    answers[#answers + 1] = id
  else
    answers[#answers + 1], has_lost = '0', true
  end
  i = last_event + 1
end

-- XACK comes first, as in reschedule.
local refused = has_lost and unfinished_group(reports, group)
  or touch(job_keys)
  or refusal('XACK', stream, group, '0-0')
  or refusal('XDEL', stream, '0-0')
if refused then return refused end

local moved, why = {}, ''
for n, id in ipairs(answers) do
  if ours[id] then
    local letter_id = letters[id] and pcall('XADD', dead, '*', unpack(letters[id]))
    if type(letter_id) == 'table' then
      answers[n], why = 'x', letter_id.err
    else
      answers[n] = '1'
      moved[#moved + 1] = id
    end
  end
end
local refused_events = remove_moved(moved, event_words)
if #moved > 0 and pcall('EXISTS', notes) == 1 then pcall('HDEL', notes, unpack(moved)) end
for _, id in ipairs(moved) do
  if ours[id] ~= '' then release_id(ours[id], id) end
end
if max_len > 0 and #moved > 0 then
  local trimmed = pcall('XTRIM', dead, 'MAXLEN', '~', max_len, 'LIMIT', 1000)
  if type(trimmed) == 'number' and trimmed > 0 then pcall('INCRBY', dropped, trimmed) end
end
return {table.concat(answers), why, refused_events}
