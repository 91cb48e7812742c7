-- Moves dead jobs back to the stream.
--
-- Atomically, for each job: only if its dead letter is still there, the job joins the stream and the dead letter is removed.
-- This closes the race between callers that replay the same dead letters: each is moved once. Sent twice, it moves nothing
-- twice. If the stream refuses a job, that job and those behind it stay dead.
--
-- KEYS  dead letters (stream), stream
-- ARGV  for each job: id of the dead letter, envelope, name (may be empty)
-- Returns {how many were moved, the error that the others were refused with, or empty}
local dead, stream = KEYS[1], KEYS[2]

-- include lib/add_entry.lua

redis.call('XDEL', dead, '0-0')  -- changes nothing: a user without the right to delete dead letters must not add their jobs

local moved = 0
for i = 1, #ARGV, 3 do
  local id, envelope, name = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local letters = redis.pcall('XRANGE', dead, id, id)
  if letters.err then return {moved, letters.err} end
  if #letters == 1 then
    local entry_id = add_entry(stream, name, envelope, false)
    if type(entry_id) == 'table' then return {moved, entry_id.err} end
    redis.call('XDEL', dead, id)
    moved = moved + 1
  end
end
return {moved, ''}
