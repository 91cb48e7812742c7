-- Adds a batch of jobs to the stream, at most once however often the batch is sent.
--
-- Atomically: either the ledger has this batch, and the answer of the first time is returned again; or its jobs join the
-- stream and the ledger records the batch. Closes the race between a reply that is lost and the batch that is sent again. A
-- producer reuses a slot only after the batch in it was answered or given up. So a number lower than the slot's belongs to
-- bytes that were stuck on an old connection, and must not be added. If the stream refuses the first job, nothing is
-- added; if it refuses a later one, it keeps those before it.
--
-- KEYS  stream, ledger (hash: slot -> "number taken")
-- ARGV  slot, number, ledger_ttl_ms, max_stream_len (0: no bound), needed (how many jobs must fit, or none is taken; a batch
--       of single adds needs 1), number of jobs, then for each run of jobs with one name: name (may be empty), number of
--       jobs, envelope...
-- Returns how many jobs were taken, from the front of the batch
local stream, ledger = KEYS[1], KEYS[2]
local slot, number, ledger_ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local max_stream_len, needed, jobs = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local call, pcall = redis.call, redis.pcall

-- include lib/add_entry.lua

local seen = call('HGET', ledger, slot)
if seen then
  local last, taken = string.match(seen, '^(%d+) (%w+)$')
  if not last then return redis.error_reply('ERR ' .. ledger .. ' holds no batches of a producer') end
  if tonumber(last) >= number then return tonumber(taken) or 0 end  -- no number: add_with_options has used the slot since
end

local taken = jobs
if max_stream_len > 0 then
  local room = max_stream_len - call('XLEN', stream)
  if room < needed then taken = 0 else taken = math.min(jobs, room) end
end

-- Before the jobs: a batch that was added must be on record.
call('HSET', ledger, slot, ARGV[2] .. ' ' .. taken)
pcall('PEXPIRE', ledger, ledger_ttl_ms)

local added, head, trouble = 0, 7, nil
while added < taken and not trouble do
  local name, run = ARGV[head], tonumber(ARGV[head + 1])
  for i = head + 2, head + 1 + math.min(run, taken - added) do
    local id = add_entry(stream, name, ARGV[i], false)
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
