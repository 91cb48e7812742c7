-- Takes over entries of a worker that is dead or has left.
--
-- Atomically: if the worker's lease is still the one that was judged (it has not come back in the meantime), up to
-- `count` of its entries become ours, each counted as one more delivery; with none left its name goes. Entries that
-- were deleted while pending are dropped. If the reply is lost, the entries are pending for us and found again as
-- orphans.
--
-- KEYS  stream, workers
-- ARGV  group, consumer (we), from (the dead), lease (the score that was judged), count
-- Returns false if the lease has moved, else a list of {id, fields, earlier deliveries}
local stream, workers = KEYS[1], KEYS[2]
local group, consumer, from, lease, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local score = redis.call('ZSCORE', workers, from)
if not score or tonumber(score) ~= tonumber(lease) then return false end

local taken = {}
for _, pending in ipairs(redis.call('XPENDING', stream, group, '-', '+', count, from)) do
  local id, deliveries = pending[1], pending[4]
  local claimed = redis.call('XCLAIM', stream, group, consumer, 0, id)
  if #claimed == 1 and claimed[1] and claimed[1][2] then
    taken[#taken + 1] = {id, claimed[1][2], deliveries}
  else
    redis.call('XACK', stream, group, id)
  end
end

if #redis.call('XPENDING', stream, group, '-', '+', 1, from) == 0 then
  redis.call('XGROUP', 'DELCONSUMER', stream, group, from)
  redis.call('ZREM', workers, from)
end
return taken
