-- Makes entries that a worker holds pending for it again, in a group that rebuild_group has recreated.
--
-- Atomically: an entry that is not pending, or by an earlier delivery, becomes this worker's, by the delivery that it
-- was held by; and with the last of them the worker's report goes, which the others wait for. A worker that lost an entry
-- may still run it: the one that took it over has it by a later delivery, and keeps it whichever of the two calls first. An
-- entry behind `last` has been read from the new group. A report that is gone was of a group that is lost again: nothing is
-- claimed, and rebuild_group must be called. Sent twice, it changes nothing.
--
-- KEYS  stream, workers, reports (of rebuild_group)
-- ARGV  group, consumer, lease_ms, workers_kept_ms, is_last (1: these are the last that it holds), then entry id, delivery
--       for each entry
-- Returns 1 if the worker has a report, else 0
local stream, workers, reports = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, lease_ms, workers_kept_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local is_last = ARGV[5] == '1'
local call = redis.call

-- include lib/refusal.lua
-- include lib/server_time.lua
-- include lib/is_after.lua

local found = call('HMGET', reports, 'last', 'of ' .. consumer)
local last, report = found[1], found[2]
if not (report and string.find(last or '', '^%d+-%d+$')) then return 0 end  -- without a last one, reports come in
-- Whatever could be refused must be refused before anything is written. XCLAIM comes first: it needs no memory.
local refused = refusal('XCLAIM', stream, group, consumer, 0, '0-0', 'JUSTID')
  or refusal('HDEL', reports, '')
  or refusal('XPENDING', stream, group, '-', '+', 1)
  or refusal('PEXPIRE', workers, workers_kept_ms)
if refused then return refused end

call('ZADD', workers, server_time_ms(math.floor) + lease_ms, consumer)
call('PEXPIRE', workers, workers_kept_ms)
for i = 6, #ARGV, 2 do
  local id, delivery = ARGV[i], math.min(tonumber(ARGV[i + 1]), 1e9)
  if not is_after(id, last) then
    local pending = call('XPENDING', stream, group, id, id, 1)[1]
    if not pending or pending[4] < delivery then
      call('XCLAIM', stream, group, consumer, 0, id, 'RETRYCOUNT', delivery, 'FORCE', 'JUSTID')
    end
  end
end
if is_last then call('HDEL', reports, 'of ' .. consumer) end
return 1
