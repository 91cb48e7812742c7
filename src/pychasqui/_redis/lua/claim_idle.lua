-- Takes over entries of consumers that are not of our kind and have let them lie.
--
-- Atomically: entries that have been idle for `min_idle_ms`, and whose consumer is neither us nor a worker with a
-- lease, become ours, each counted as one more delivery. Official consumers have no lease; idleness is all they show.
--
-- KEYS  stream, workers
-- ARGV  group, consumer (we), min_idle_ms, count, max_bytes (the last entry may go beyond it),
--       max_entry_bytes (of a larger one comes the size alone)
-- Returns a list of {id, fields or size, earlier deliveries}, empty if none is left
local stream, workers = KEYS[1], KEYS[2]
local group, consumer, min_idle_ms, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local bytes_left, max_entry_bytes = tonumber(ARGV[5]), tonumber(ARGV[6])

-- include lib/bounded_fields.lua

local leased = {}  -- by consumer
local function has_lease(owner)
  if leased[owner] == nil then leased[owner] = redis.call('ZSCORE', workers, owner) and true or false end
  return leased[owner]
end

-- Entries of workers with a lease may be idle for long, too: they are looked past, page by page.
local page, taken, start = 500, {}, '-'
while #taken < count and bytes_left > 0 do
  local found = redis.call('XPENDING', stream, group, 'IDLE', min_idle_ms, start, '+', page)
  for _, pending in ipairs(found) do
    local id, owner, deliveries = pending[1], pending[2], pending[4]
    if #taken < count and bytes_left > 0 and owner ~= consumer and not has_lease(owner) then
      local claimed = redis.call('XCLAIM', stream, group, consumer, 0, id)
      if #claimed == 1 and claimed[1] and claimed[1][2] then
        local fields, bytes = bounded_fields(claimed[1][2], max_entry_bytes)
        taken[#taken + 1] = {id, fields, deliveries}
        bytes_left = bytes_left - bytes
      else
        redis.call('XACK', stream, group, id)
      end
    end
    start = '(' .. id
  end
  if #found < page then break end
end
return taken
