-- Adds a batch of jobs to the stream, at most once however often the batch is sent.
--
-- Atomically: either this batch was already seen, and the answer it got then is given again; or its jobs join the
-- stream and the ledger remembers the batch. Closes the race between a reply that got lost and the batch being sent
-- again. A producer sends batch n+W in the slot of batch n only after n was answered or given up, so a number that is
-- lower than the slot's belongs to bytes that were stuck on an old connection, and must not be added any more.
--
-- KEYS  stream, ledger (hash: slot -> "number taken")
-- ARGV  slot, number, ledger_ttl_ms, max_stream_len (0: no bound), needed, then envelope, name for each job
--       needed: how many jobs there must be room for, or none is taken; a batch of single adds needs 1
-- Returns how many jobs were taken, from the front of the batch
local stream, ledger = KEYS[1], KEYS[2]
local slot, number, ledger_ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local max_stream_len, needed = tonumber(ARGV[4]), tonumber(ARGV[5])

local seen = redis.call('HGET', ledger, slot)
if seen then
  local last, taken = string.match(seen, '^(%d+) (%d+)$')
  if tonumber(last) >= number then return tonumber(taken) end
end

local jobs = (#ARGV - 5) / 2
local taken = jobs
if max_stream_len > 0 then
  local room = max_stream_len - redis.call('XLEN', stream)
  if room < needed then taken = 0 else taken = math.min(jobs, room) end
end

for i = 6, 4 + 2 * taken, 2 do
  local name = ARGV[i + 1]
  if name == '' then
    redis.call('XADD', stream, '*', 'd', ARGV[i])
  else
    redis.call('XADD', stream, '*', 'd', ARGV[i], 'n', name)
  end
end

redis.call('HSET', ledger, slot, ARGV[2] .. ' ' .. taken)
redis.call('PEXPIRE', ledger, ledger_ttl_ms)
return taken
