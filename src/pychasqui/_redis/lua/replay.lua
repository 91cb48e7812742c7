-- Moves dead jobs back to the stream.
--
-- Atomically, for each job: only if its dead letter is still there it is removed, and only then the job joins the
-- stream. Closes the race between several who replay the same letters: each is moved once. Sending it twice moves
-- nothing twice.
--
-- KEYS  dead letters, stream
-- ARGV  dead letter id, envelope, name (may be empty) for each job
-- Returns how many were moved
local dead, stream = KEYS[1], KEYS[2]

-- Whatever could fail must fail before the first letter is removed.
local kind = redis.call('TYPE', stream).ok
if kind ~= 'none' and kind ~= 'stream' then
  return redis.error_reply('WRONGTYPE ' .. stream .. ' is a ' .. kind .. ', not a stream')
end

local moved = 0
for i = 1, #ARGV, 3 do
  local id, envelope, name = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if redis.call('XDEL', dead, id) == 1 then
    if name == '' then
      redis.call('XADD', stream, '*', 'd', envelope)
    else
      redis.call('XADD', stream, '*', 'd', envelope, 'n', name)
    end
    moved = moved + 1
  end
end
return moved
