-- Recreates a group that is missing, around the entries that living workers still hold. Each worker calls it again and again
-- until the group is complete.
--
-- 1. The group is missing. Each call stores what its worker holds, as a report, and renews the lease of that worker, which
--    renew_worker_lease does not do meanwhile. Nothing can be read without the group, so no worker gets further entries: this
--    closes the race between a worker that reports what it holds and one that would be handed the same entries.
-- 2. Once each living worker has reported, or the leases at the time of the first report have ended, the group is created. It
--    begins behind the last entry that a worker holds, so that what follows is read as new; but not behind the last id of the
--    stream. A stream that was restored or begun again may be behind what is held, and entries that are added up to there
--    would never be read.
-- 3. Each worker that has reported makes what it holds pending for itself, by claim_held.
-- 4. When no living worker has to do that any more, the entries that no worker holds pass to a consumer that counts as having
--    left, a bounded number in each call. Any worker takes them over from there.
--
-- Until the last step is done the group is not complete: each script that would take an entry for lost fails with NOGROUP
-- meanwhile, so that each living worker, or the next one that starts, calls this script again. Each call is atomic. Sent
-- twice, it changes nothing.
--
-- KEYS  stream, workers (sorted set: consumer -> end of its lease in ms, 0 if it has left), reports (hash: `until`, how long
--       to wait for reports; `of <consumer>`, the last entry that it holds, until it has claimed; `start` and `last` of the
--       entries that step 4 has to look at)
-- ARGV  group, consumer, lease_ms, workers_kept_ms (how long the list of workers outlives this call), heir (the consumer that
--       counts as having left), idle_ms (for how long its entries look idle), the last entry that this worker holds (empty:
--       none)
-- Returns 1 if the group is complete, 0 if the worker must call again, 2 if it must call claim_held before that
local stream, workers, reports = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, lease_ms, workers_kept_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local heir, idle_ms, last_held = ARGV[5], ARGV[6], ARGV[7]
local call, pcall = redis.call, redis.pcall

-- include lib/refusal.lua
-- include lib/server_time.lua
-- include lib/is_after.lua
-- include lib/reports_of_living.lua
-- include lib/most_for_heir.lua
-- include lib/hand_over.lua
-- include lib/complete_group.lua
-- include lib/server_refusal_of_rebuild.lua

local pending = pcall('XPENDING', stream, group, '-', '+', 1)
if pending.err and not string.find(pending.err, 'NOGROUP', 1, true) then return pending end
local now_ms = server_time_ms(math.floor)
if not pending.err then return complete_group(now_ms) end

-- Whatever could be refused must be refused before anything is written. PERSIST comes first: it needs no memory, and what
-- follows a write passes without memory; the reports get their end again at once.
local length = call('XLEN', stream)
local about = length > 0 and call('XINFO', 'STREAM', stream)
-- Workers of other groups may be in the same list and never report: no worker waits past the longest lease.
local longest = call('ZREVRANGE', workers, 0, 0, 'WITHSCORES')[2]
local found = call('HMGET', reports, 'until', 'start')
local until_ms, unfinished = found[1], found[2]
call('PERSIST', reports)
if length == 0 then
  call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
  pcall('DEL', reports)
  return 1
end
local refused = server_refusal_of_rebuild()
if refused then return refused end

-- The group has vanished again before it was complete: what workers reported before is out of date, they have read since.
if unfinished and unfinished ~= '' then
  call('DEL', reports)
  until_ms = nil
end

until_ms = until_ms or longest or 0
call('HSET', reports, 'until', until_ms, 'of ' .. consumer, last_held, 'start', '')
call('PEXPIRE', reports, lease_ms)
renew_own_lease(now_ms)

local last, must_wait = '0-0', now_ms < (tonumber(until_ms) or 0)
for _, report in ipairs(reports_of_living(now_ms)) do
  if must_wait and not report then return 0 end
  -- Anybody may have written a report, also with a number that is too large for an id.
  local is_id = string.find(report or '', '^%d+-%d+$') and not refusal('XRANGE', stream, report, report, 'COUNT', 0)
  if is_id and is_after(report, last) then last = report end
end
for i = 1, #about, 2 do
  if about[i] == 'last-generated-id' and is_after(last, about[i + 1]) then last = about[i + 1] end
end
call('XGROUP', 'CREATE', stream, group, last)
go_on_later('-', last)
return 2
