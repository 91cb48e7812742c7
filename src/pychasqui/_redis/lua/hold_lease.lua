-- Renews the lease of a worker on behalf of its supervisor, if the worker does not renew it itself.
--
-- Atomically: if the worker has a lease and less than `least_left_ms` of it is left, the lease ends `lease_ms` from now, and
-- the entries that are pending for the worker count as just delivered, without one more delivery. This closes the race with a
-- worker that leaves: a worker that has left, or has no lease yet, gets none. No entry changes its owner. Sent twice, it
-- renews again.
--
-- KEYS  stream, workers (sorted set: consumer -> end of its lease in ms, 0 if it has left), reports (hash of rebuild_group)
-- ARGV  group, consumer, lease_ms, least_left_ms, workers_kept_ms (how long the list of workers outlives this call), after
--       (the answer of the last call, if that has more to renew; empty in a first call)
-- Fails with NOGROUP while the group is missing or not complete, and renews nothing
-- Returns false if the worker renews its lease itself, or has none. Else it returns the id of the last entry that it has
-- renewed the hold on, if there may be more behind it, and an empty string if there are none
local stream, workers, reports = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, lease_ms, least_left_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local workers_kept_ms, after = ARGV[5], ARGV[6]
local page = 500

-- include lib/refusal.lua
-- include lib/unfinished_group.lua
-- include lib/server_time.lua

local pending = redis.pcall('XPENDING', stream, group, after == '' and '-' or '(' .. after, '+', page, consumer)
if pending.err then return pending end
local unfinished = unfinished_group(reports, group)
if unfinished then return unfinished end

local lease, now_ms = tonumber(redis.call('ZSCORE', workers, consumer) or 0), server_time_ms(math.floor)
if lease == 0 or after == '' and lease - now_ms >= least_left_ms then return false end

-- Whatever could be refused must be refused before the lease is renewed. PEXPIRE comes first: it needs no memory, and what
-- follows a write passes without memory: a full server must not end a lease.
local refused = refusal('PEXPIRE', workers, workers_kept_ms)
  or refusal('ZADD', workers, 'XX', 'GT', '-inf', consumer)
  or refusal('XCLAIM', stream, group, consumer, 0, '0-0', 'JUSTID')
if refused then return refused end
redis.call('ZADD', workers, now_ms + lease_ms, consumer)

if #pending == 0 then return '' end
local held = {}
for i, entry in ipairs(pending) do held[i] = entry[1] end
local last = held[#held]
held[#held + 1] = 'JUSTID'
redis.call('XCLAIM', stream, group, consumer, 0, unpack(held))
return #pending == page and last or ''
