-- Hands unstarted entries back to the group: any worker may take them at once, and the delivery is not counted.
--
-- Atomically: an entry that is still pending for this consumer, by that delivery, passes to a consumer that counts as having
-- left, looks long idle to consumers without leases, and has the delivery count that it had before. The worker that hands
-- it back may live on: its lease no longer protects the entry. Closes the race with a worker that took the entry over. Sent
-- twice, it changes nothing. A call looks at a bounded number of entries.
--
-- KEYS  stream, workers
-- ARGV  group, consumer, heir (the consumer that has left), idle_ms, workers_kept_ms (how long the list of workers outlives
--       its last renewal), then entry id, earlier deliveries for each entry
-- Returns {how many were handed back, how many entries it has looked at, from the first on}
local stream, workers = KEYS[1], KEYS[2]
local group, consumer, heir, idle_ms, workers_kept_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local call = redis.call

-- include lib/refusal.lua
-- include lib/is_held.lua
-- include lib/most_for_heir.lua

local trouble = refusal('XPENDING', stream, group)
if trouble and string.find(trouble.err, 'NOGROUP', 1, true) then return {0, (#ARGV - 5) / 2} end
if trouble then return trouble end

local looked_at, mine = math.min((#ARGV - 5) / 2, most_for_heir(500)), {}
for i = 6, 4 + 2 * looked_at, 2 do
  if is_held(stream, group, consumer, ARGV[i], tonumber(ARGV[i + 1]) + 1) then mine[#mine + 1] = i end
end
if #mine == 0 then return {0, looked_at} end

-- XCLAIM comes first: it needs no memory, and once a script has written, the server refuses it nothing for want of memory.
local refused = refusal('XCLAIM', stream, group, consumer, 0, '0-0', 'JUSTID')
if refused then return refused end

call('ZADD', workers, 0, heir)
redis.pcall('PEXPIRE', workers, workers_kept_ms)  -- also if the list begins here
for _, i in ipairs(mine) do
  call('XCLAIM', stream, group, heir, 0, ARGV[i], 'IDLE', idle_ms, 'RETRYCOUNT', ARGV[i + 1], 'JUSTID')
end
return {#mine, looked_at}
