-- Cancels a job by its id, wherever it is.
--
-- Atomically: a job that is delayed, or that no consumer has received, is removed with its keys, and its event is written if
-- the queue has events. About a job that a consumer has received a note is written, by which its worker stops it; a
-- message wakes the workers. Closes the races with promotion, with reads, and with a run that fails meanwhile: reschedule
-- looks for the note. A note is about one entry or, if the job cannot be found, about all entries with its id up to the last
-- one, so it never concerns a later job of that id. Sent twice, a job that was removed is unknown, and a note stays the same.
--
-- KEYS  stream, delayed, events, notes (hash: entry id -> 1, "id " and job id -> the last entry that is meant), the job's
--       uniqueness key, the key that official producers check, the job's member of the delayed set
-- ARGV  job id, entry id (empty: not known), is_lost (1: the job may be in an entry that was not found), notes_kept_ms,
--       most_notes, events_max_len, channel
-- Returns {removed, stopping or unknown, the job's name if it was removed}
local stream, delayed, events, notes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local unique, official, index = KEYS[5], KEYS[6], KEYS[7]
local job_id, known_entry, is_lost = ARGV[1], ARGV[2], ARGV[3] == '1'
local notes_kept_ms, most_notes, events_max_len, channel = ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]
local call, pcall = redis.call, redis.pcall

-- include lib/id_of.lua
-- include lib/is_after.lua
-- include lib/is_unread.lua
-- include lib/find_entry.lua
-- include lib/names_entry.lua
-- include lib/split_member.lua
-- include lib/server_time.lua
-- include lib/publish.lua
-- include lib/write_cancelled.lua

local now_ms = server_time_ms(math.floor)

-- Each worker reads all notes whenever it renews its lease: one of more than 40 bytes takes the room of several.
local function write_note(field, value, most)
  local count = call('HLEN', notes)
  if (count + 1) * math.max(1, #field / 40) > most and call('HEXISTS', notes, field) == 0 then
    return redis.error_reply('ERR no note about this job has room beside ' .. count .. ' about cancelled jobs in the stream')
  end
  pcall('PEXPIRE', notes, notes_kept_ms)  -- needs no memory, and what follows a write passes without memory
  call('HSET', notes, field, value)
  pcall('PEXPIRE', notes, notes_kept_ms)
  publish(channel, 'cancel')
  return {'stopping', ''}
end

-- The first write of each way is the one that matters: if it is refused, nothing has changed.

local location, member = unpack(call('MGET', unique, index))
local rank = member and call('ZRANK', delayed, member)
if rank then
  call('ZREMRANGEBYRANK', delayed, rank, rank)
  pcall('DEL', index)
  if not names_entry(location) then pcall('DEL', unique, official) end  -- else they are of another job of this id
  local name = split_member(member)
  write_cancelled(job_id, name, now_ms)
  return {'removed', name}
end

for _, where in ipairs({string.match(location or '', '^w?(%d+-%d+)$') or '', known_entry}) do
  local entry_id, name, trouble
  if where ~= '' then entry_id, name, trouble = find_entry(where, job_id) end
  if trouble then return trouble end
  if entry_id and not is_unread(entry_id) then return write_note(entry_id, '1', most_notes) end
  if entry_id then
    call('XDEL', stream, entry_id)
    if location == where or location == 'w' .. where then pcall('DEL', unique, official) end
    write_cancelled(job_id, name, now_ms)
    return {'removed', name}
  end
end

local newest = is_lost and call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
-- Half of the room: jobs that may not be there must not keep out those that run.
if newest then return write_note('id ' .. job_id, newest[1], most_notes / 2) end
return {'unknown', ''}
