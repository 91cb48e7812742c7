-- Adds a batch of jobs to the stream, at most once however often the batch is sent.
--
-- Atomically: either this batch was already seen, and the answer it got then is given again; or its jobs join the
-- stream and the ledger remembers the batch. Closes the race between a reply that got lost and the batch being sent
-- again. A producer reuses a slot only after the batch that had it was answered or given up, so a number lower than
-- the slot's belongs to bytes that were stuck on an old connection, and must not be added any more. If the stream refuses
-- the first job, nothing is added; if it refuses a later one, it takes those before it.
--
-- KEYS  stream, ledger (hash: slot -> "number taken")
-- ARGV  slot, number, ledger_ttl_ms, max_stream_len (0: no bound), needed, jobs,
--       then for each run of jobs with one name: name (may be empty), how many, envelope...
--       needed: how many jobs there must be room for, or none is taken; a batch of single adds needs 1
-- Returns how many jobs were taken, from the front of the batch
local stream, ledger = KEYS[1], KEYS[2]
local slot, number, ledger_ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local max_stream_len, needed, jobs = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local call, pcall = redis.call, redis.pcall

local seen = call('HGET', ledger, slot)
if seen then
  local last, taken = string.match(seen, '^(%d+) (%w+)$')
  if not last then return redis.error_reply('ERR ' .. ledger .. ' holds no batches of a producer') end
  if tonumber(last) >= number then return tonumber(taken) or 0 end  -- not a number: add_with_options has had the slot since
end

local taken = jobs
if max_stream_len > 0 then
  local room = max_stream_len - call('XLEN', stream)
  if room < needed then taken = 0 else taken = math.min(jobs, room) end
end

-- Before the jobs: what has been added must not be forgotten.
call('HSET', ledger, slot, ARGV[2] .. ' ' .. taken)
pcall('PEXPIRE', ledger, ledger_ttl_ms)

local added, head, trouble = 0, 7, nil
while added < taken and not trouble do
  local name, run = ARGV[head], tonumber(ARGV[head + 1])
  for i = head + 2, head + 1 + math.min(run, taken - added) do
    local id
    if name == '' then
      id = pcall('XADD', stream, '*', 'd', ARGV[i])
    else
      id = pcall('XADD', stream, '*', 'd', ARGV[i], 'n', name)
    end
    if type(id) == 'table' then
      trouble = id
      break
    end
    added = added + 1
  end
  head = head + 2 + run
end
if not trouble then return taken end

if added > 0 then
  call('HSET', ledger, slot, ARGV[2] .. ' ' .. added)
  return added
end
call('HSET', ledger, slot, seen or '0 0')
if not seen then pcall('HDEL', ledger, slot) end
return trouble
