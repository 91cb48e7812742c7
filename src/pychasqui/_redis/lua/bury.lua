-- Moves jobs that cannot succeed from the stream to the dead letters.
--
-- Atomically, for each job: only if its entry is still pending for this consumer, by the delivery that this run began
-- with, it leaves the stream, and only then it joins the dead letters. Closes the same race as reschedule. Sending it
-- twice changes nothing. What the bound on the dead letters pushes out is counted.
--
-- KEYS  stream, dead letters, counter of dropped dead letters
-- ARGV  group, consumer, max_len (0: no bound), prefix of the queue's keys, then for each job: entry id, delivery,
--       job id (empty: it is certainly not the only one of its id), number of fields and values, field, value...
--       A letter whose first field is empty gets the entry's own payload and name there.
-- Fails with NOGROUP while the group is gone: it is made anew, and then it shows whose the entry is.
-- Returns how many were buried
local stream, dead, dropped = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, max_len, prefix = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

-- Whatever could fail must fail before the first entry leaves the stream.
local kind = redis.call('TYPE', dead).ok
if kind ~= 'none' and kind ~= 'stream' then
  return redis.error_reply('WRONGTYPE ' .. dead .. ' is a ' .. kind .. ', not a stream')
end

-- include lib/unmark.lua
-- include lib/letter_of.lua

local ours, ids, letters, i = {}, {}, {}, 5
while i <= #ARGV do
  local id, delivery, words = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 3])
  local pending = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)
  if pending.err and string.find(pending.err, 'NOGROUP', 1, true) then return pending end
  if not pending.err and #pending == 1 and pending[1][4] <= delivery and not ours[id] then
    ours[id] = i
    ids[#ids + 1] = id
    letters[id] = letter_of(stream, id, i + 4, i + 3 + words)
  end
  i = i + 4 + words
end
if #ids == 0 then return 0 end

redis.call('XACK', stream, group, unpack(ids))
redis.call('XDEL', stream, unpack(ids))
for _, id in ipairs(ids) do
  i = ours[id]
  local job_id = ARGV[i + 2]
  redis.call('XADD', dead, '*', unpack(letters[id]))
  if job_id ~= '' then unmark(prefix, job_id, id) end
end

if max_len > 0 then
  local trimmed = redis.call('XTRIM', dead, 'MAXLEN', '~', max_len)
  if trimmed > 0 then redis.call('INCRBY', dropped, trimmed) end
end
return #ids
