-- Recreates a group that is missing, around the entries that living workers still hold.
--
-- While the group is missing no worker can read, so none gets further entries: that closes the race between a worker that
-- reports what it holds and one that would be handed it. Atomically: this worker's report is stored and its lease renewed,
-- which renew_worker_lease does not do meanwhile; so every worker that outlives the leases at the time of the first report has
-- reported. When there is no worker left to wait for, the group begins behind the last entry that a worker holds, but never
-- behind the stream's last id: a stream that was restored or begun again may be behind what is held, and what is added up
-- to there would never be read. What comes behind is read as new. Then each worker that reported makes what it holds pending
-- for itself, by claim_held. When no living worker is left that has to, entries that no worker holds go to a consumer that
-- counts as having left, as release_entries hands them back: a bounded number in one call. Until all have gone the group
-- is not complete, and every script that would take an entry for lost fails with NOGROUP, so that each living worker, or
-- the next one that starts, calls again. Sent twice, it changes nothing.
--
-- KEYS  stream, workers, reports (hash: `until`; `of <consumer>`: the last entry that it holds, until it has claimed; `start`
--       and `last` of what is to be handed over)
-- ARGV  group, consumer, lease_ms, workers_kept_ms (how long the list of workers outlives this), heir (the consumer that has
--       left), idle_ms, the last entry that is held (empty: none)
-- Returns 1 if the group is complete, 0 if this must be called again, 2 if claim_held must be called before that
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
  -- Anybody may have written a report.
  if string.find(report or '', '^%d+-%d+$') and is_after(report, last) then last = report end
end
for i = 1, #about, 2 do
  if about[i] == 'last-generated-id' and is_after(last, about[i + 1]) then last = about[i + 1] end
end
call('XGROUP', 'CREATE', stream, group, last)
go_on_later('-', last)
return 2
