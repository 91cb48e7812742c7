-- Moves dead jobs back to the stream.
--
-- Atomically, for each job: only if its dead letter is still there the job joins the stream, and then the letter goes.
-- Closes the race between several who replay the same letters: each is moved once. Sending it twice moves nothing twice.
-- If the stream refuses a job, that one and those behind it stay dead.
--
-- KEYS  dead letters, stream
-- ARGV  dead letter id, envelope, name (may be empty) for each job
-- Returns {how many were moved, the error that the others were refused with, or empty}
local dead, stream = KEYS[1], KEYS[2]

redis.call('XDEL', dead, '0-0')  -- changes nothing: a user who may not delete letters must not add their jobs

local moved = 0
for i = 1, #ARGV, 3 do
  local id, envelope, name = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local letters = redis.pcall('XRANGE', dead, id, id)
  if letters.err then return {moved, letters.err} end
  if #letters == 1 then
    local entry_id
    if name == '' then
      entry_id = redis.pcall('XADD', stream, '*', 'd', envelope)
    else
      entry_id = redis.pcall('XADD', stream, '*', 'd', envelope, 'n', name)
    end
    if type(entry_id) == 'table' then return {moved, entry_id.err} end
    redis.call('XDEL', dead, id)
    moved = moved + 1
  end
end
return {moved, ''}
