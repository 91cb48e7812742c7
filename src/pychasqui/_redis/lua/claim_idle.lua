-- Takes over idle entries of consumers without a lease, which are not workers of ours.
--
-- Atomically: entries that have been idle for `min_idle_ms`, and whose consumer is neither us nor a worker with a lease,
-- become ours, each counted as one more delivery. Official consumers have no lease: only idleness shows that they are dead.
-- Closes the race with other workers that claim: each entry becomes one worker's. If the reply is lost, the entries are
-- pending for us and found by list_pending. Sent twice, it takes over the next ones.
--
-- A call looks at the first entries of each such consumer, about `most_seen` in all, however many are pending: those of
-- workers with a lease cost nothing, and idle ones behind many fresh ones come once those are acked or idle, too.
--
-- KEYS  stream, workers
-- ARGV  group, consumer (we), min_idle_ms, count, max_bytes (the last entry may go beyond it), max_entry_bytes (of a larger
--       entry only the size is sent)
-- Returns a list of {id, fields or size, earlier deliveries}, empty if none is left
local stream, workers = KEYS[1], KEYS[2]
local group, consumer, min_idle_ms, count = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local bytes_left, max_entry_bytes = tonumber(ARGV[5]), tonumber(ARGV[6])
local most_seen = 2000  -- 2 ms

-- include lib/bounded_fields.lua
-- include lib/claim_entry.lua

local leaseless = {}
for _, holder in ipairs(redis.call('XPENDING', stream, group)[4] or {}) do
  local is_other = holder[1] ~= consumer and not redis.call('ZSCORE', workers, holder[1])
  if is_other then leaseless[#leaseless + 1] = holder[1] end
end

local page, taken = math.max(10, math.floor(most_seen / math.max(1, #leaseless))), {}
for _, owner in ipairs(leaseless) do
  for _, pending in ipairs(redis.call('XPENDING', stream, group, '-', '+', page, owner)) do
    if #taken >= count or bytes_left <= 0 then return taken end
    if pending[3] >= min_idle_ms then
      local entry, bytes = claim_entry(stream, group, consumer, pending, max_entry_bytes)
      taken[#taken + 1] = entry
      bytes_left = bytes_left - bytes
    end
  end
end
return taken
