-- Moves jobs that cannot succeed from the stream to the dead letters, and writes their events.
--
-- Atomically, for each job: only if its entry is still pending for this consumer, by the delivery that this run began
-- with, it joins the dead letters, and then leaves the stream. Closes the same race as reschedule. Sending it twice
-- changes nothing. What the bound on the dead letters pushes out is counted, as far as that can be; markers and
-- events are best effort, as reschedule has it.
--
-- KEYS  stream, dead letters, counter of dropped dead letters, events
-- ARGV  group, consumer, max_len (0: no bound), prefix of the queue's keys, events_max_len, then for each job: entry id,
--       delivery, job id (empty: it is certainly not the only one of its id), number of words of its letter, number of
--       words of its events, field, value... of the letter, then each event: how many words, field, value...
--       A letter whose first field is empty gets the entry's own payload and name there.
-- Fails with NOGROUP while the group is gone: it is made again, and then it shows whose the entry is.
-- Returns {answers, error, untold}, as reschedule does
local stream, dead, dropped, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer, max_len, prefix, events_max_len = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local call, pcall = redis.call, redis.pcall

-- include lib/refusal.lua
-- include lib/is_held.lua
-- include lib/release_id.lua
-- include lib/dead_letter.lua
-- include lib/write_events.lua

-- XACK comes first, as in reschedule.
local refused = refusal('XACK', stream, group, '0-0') or refusal('XDEL', stream, '0-0')
if refused then return refused end

local ours, answers, letters, i = {}, {}, {}, 6
while i <= #ARGV do
  local id = ARGV[i]
  local held, trouble = is_held(stream, group, consumer, id, tonumber(ARGV[i + 1]))
  if trouble then return trouble end
  if held and not ours[id] then
    ours[id] = i
    if ARGV[i + 5] == '' then letters[id] = dead_letter(stream, id, i + 5, i + 4 + tonumber(ARGV[i + 3])) end
    answers[#answers + 1] = id
  else
    answers[#answers + 1] = '0'
  end
  i = i + 5 + tonumber(ARGV[i + 3]) + tonumber(ARGV[i + 4])
end

local moved, why = {}, ''
for n, id in ipairs(answers) do
  i = ours[id]
  if i then
    local letter
    if letters[id] then
      letter = pcall('XADD', dead, '*', unpack(letters[id]))
    else
      letter = pcall('XADD', dead, '*', unpack(ARGV, i + 5, i + 4 + tonumber(ARGV[i + 3])))
    end
    if type(letter) == 'table' then
      answers[n], why = 'x', letter.err
    else
      answers[n] = '1'
      moved[#moved + 1] = id
    end
  end
end

local untold = 0
if #moved > 0 then
  call('XACK', stream, group, unpack(moved))
  call('XDEL', stream, unpack(moved))
  for _, id in ipairs(moved) do
    i = ours[id]
    local job_id, first = ARGV[i + 2], i + 5 + tonumber(ARGV[i + 3])
    if job_id ~= '' then release_id(prefix, job_id, id) end
    untold = untold + write_events(events, first, first - 1 + tonumber(ARGV[i + 4]))
  end
  if ARGV[ours[moved[1]] + 4] ~= '0' then pcall('XTRIM', events, 'MAXLEN', '~', events_max_len) end
  if max_len > 0 then
    local trimmed = pcall('XTRIM', dead, 'MAXLEN', '~', max_len)
    if type(trimmed) == 'number' and trimmed > 0 then pcall('INCRBY', dropped, trimmed) end
  end
end
return {table.concat(answers), why, untold}
