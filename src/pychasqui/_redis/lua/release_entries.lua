-- Hands unstarted entries back to the group: any worker may take them at once, and this delivery does not count.
--
-- Atomically: each entry that is still pending for this consumer, by the given delivery, passes to a consumer that counts as
-- having left. It looks long idle to consumers without leases, and its delivery count is the one from before. The worker that
-- hands it back may live on, because its lease does not protect entries of another consumer. This closes the race with a
-- worker that has taken the entry over. Sent twice, it changes nothing. A call looks at a bounded number of entries.
--
-- After the deadline it does nothing. A worker that gets no answer waits for that time to pass, and then runs what is still
-- pending for it: a call that the network delivers late must not give such a job to another worker.
--
-- KEYS  stream, workers (sorted set: consumer -> end of its lease in ms, 0 if it has left)
-- ARGV  group, consumer, heir (the consumer that counts as having left), idle_ms (for how long the entries look idle),
--       workers_kept_ms (how long the list of workers outlives this call), deadline_ms (by the server's clock), then for each
--       entry: id, number of earlier deliveries
-- Returns {how many entries were handed back, how many it has looked at, from the first on: 0 after the deadline}
local stream, workers = KEYS[1], KEYS[2]
local group, consumer, heir, idle_ms, workers_kept_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local deadline_ms = tonumber(ARGV[6])
local call = redis.call

-- include lib/refusal.lua
-- include lib/is_held.lua
-- include lib/most_for_heir.lua
-- include lib/server_time.lua

if server_time_ms(math.floor) > deadline_ms then return {0, 0} end

local trouble = refusal('XPENDING', stream, group)
if trouble and string.find(trouble.err, 'NOGROUP', 1, true) then return {0, (#ARGV - 6) / 2} end
if trouble then return trouble end

local looked_at, mine = math.min((#ARGV - 6) / 2, most_for_heir(500)), {}
for i = 7, 5 + 2 * looked_at, 2 do
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
