-- Takes over entries of a worker that is dead or has left.
--
-- Atomically: if the worker's lease is still the one that was judged (it has not come back in the meantime), up to
-- `count` of its entries become ours, each counted as one more delivery; with none left its name goes. Entries that
-- were deleted while pending are dropped. If the reply is lost, the entries are pending for us and found again as
-- orphans.
--
-- Only what nobody has touched since that lease ended is the dead worker's. What was delivered under its name later
-- belongs to a consumer without a lease that has come up under that name: it keeps its entries, the name is forgotten as
-- one of ours, and claim_idle judges it from then on.
--
-- KEYS  stream, workers
-- ARGV  group, consumer (we), from (the dead), lease (the score that was judged), count,
--       max_bytes (the last entry may go beyond it), max_entry_bytes (of a larger one comes the size alone)
-- Returns false if the lease has moved, else a list of {id, fields or size, earlier deliveries}, empty if none is left
local stream, workers = KEYS[1], KEYS[2]
local group, consumer, from, lease, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local bytes_left, max_entry_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])

local score = redis.call('ZSCORE', workers, from)
if not score or tonumber(score) ~= lease then return false end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local untouched_ms = lease > 0 and math.max(0, now_ms - lease) or 0  -- 0: it has left, whenever that was

-- include lib/carried.lua

local taken = {}
for _, pending in ipairs(redis.call('XPENDING', stream, group, 'IDLE', untouched_ms, '-', '+', count, from)) do
  if bytes_left <= 0 then break end
  local id, deliveries = pending[1], pending[4]
  local claimed = redis.call('XCLAIM', stream, group, consumer, 0, id)
  if #claimed == 1 and claimed[1] and claimed[1][2] then
    local fields, bytes = carried(claimed[1][2], max_entry_bytes)
    taken[#taken + 1] = {id, fields, deliveries}
    bytes_left = bytes_left - bytes
  else
    redis.call('XACK', stream, group, id)
  end
end

if #redis.call('XPENDING', stream, group, 'IDLE', untouched_ms, '-', '+', 1, from) == 0 then
  if #redis.call('XPENDING', stream, group, '-', '+', 1, from) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, from)
  end
  redis.call('ZREM', workers, from)
end
return taken
