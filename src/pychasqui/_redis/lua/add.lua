-- Adds a batch of jobs to the stream, at most once however often the batch is sent.
--
-- Atomically: either this batch was already seen, and the answer it got then is given again; or its jobs join the
-- stream and the ledger remembers the batch. Closes the race between a reply that got lost and the batch being sent
-- again. A producer reuses a slot only after the batch that had it was answered or given up, so a number lower than
-- the slot's belongs to bytes that were stuck on an old connection, and must not be added any more.
--
-- KEYS  stream, ledger (hash: slot -> "number taken")
-- ARGV  slot, number, ledger_ttl_ms, max_stream_len (0: no bound), needed, jobs,
--       then for each run of jobs with one name: name (may be empty), how many, envelope...
--       needed: how many jobs there must be room for, or none is taken; a batch of single adds needs 1
-- Returns how many jobs were taken, from the front of the batch
local stream, ledger = KEYS[1], KEYS[2]
local slot, number, ledger_ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local max_stream_len, needed, jobs = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local call = redis.call

local seen = call('HGET', ledger, slot)
if seen then
  local last, taken = string.match(seen, '^(%d+) (%w+)$')
  if tonumber(last) >= number then return tonumber(taken) or 0 end  -- not a number: add_on_terms has had the slot since
end

local taken = jobs
if max_stream_len > 0 then
  local room = max_stream_len - call('XLEN', stream)
  if room < needed then taken = 0 else taken = math.min(jobs, room) end
end

local left, head = taken, 7
while left > 0 do
  local name, run = ARGV[head], tonumber(ARGV[head + 1])
  for i = head + 2, head + 1 + math.min(run, left) do
    if name == '' then
      call('XADD', stream, '*', 'd', ARGV[i])
    else
      call('XADD', stream, '*', 'd', ARGV[i], 'n', name)
    end
  end
  left, head = left - run, head + 2 + run
end

call('HSET', ledger, slot, ARGV[2] .. ' ' .. taken)
call('PEXPIRE', ledger, ledger_ttl_ms)
return taken
