-- Takes over entries of a worker that is dead or has left.
--
-- Atomically: if the lease of that worker is still the one that the caller has judged, up to `count` of its entries become
-- pending for the caller, each with one more delivery. If none is left, the name of that worker is removed. This closes the
-- race with a worker that has come back. Entries that were deleted while they were pending are dropped. If the reply is lost,
-- list_pending finds the entries. Sent twice, it takes over those that follow.
--
-- An entry that was not touched since that lease ended is the dead worker's. What was delivered under its name later may
-- belong to a consumer without a lease that uses the same name: it is taken only after it has been idle for `min_idle_ms`, as
-- claim_idle takes such entries. It may also be the dead worker's own, because a server that hangs answers a waiting read
-- when it goes on, after the lease. A call looks at the first `most_seen` entries, however many are pending. Those behind
-- many fresh entries are taken once the fresh ones are acked or idle.
--
-- KEYS  stream, workers (sorted set: consumer -> end of its lease in ms, 0 if it has left)
-- ARGV  group, consumer (the caller), from (the dead worker), lease (the score that the caller has judged), min_idle_ms,
--       count, max_bytes (the last entry may go beyond it), max_entry_bytes (of a larger entry only the size is returned)
-- Returns false if the lease is another by now, else a list of {id, fields or size, number of earlier deliveries}, which is
-- empty if there is none
local stream, workers = KEYS[1], KEYS[2]
local group, consumer, from, lease, min_idle_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local count, bytes_left, max_entry_bytes = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local most_seen = 2000  -- XPENDING with IDLE would walk through all

-- include lib/server_time.lua
-- include lib/bounded_fields.lua
-- include lib/claim_entry.lua

local score = redis.call('ZSCORE', workers, from)
if not score or tonumber(score) ~= lease then return false end

local since_lease_ms = lease > 0 and math.max(0, server_time_ms(math.floor) - lease) or 0  -- 0: it has left, whenever that was
local untouched_ms = math.min(since_lease_ms, min_idle_ms)

local taken, seen, start, page = {}, 0, '-', nil
repeat
  page = redis.call('XPENDING', stream, group, start, '+', math.min(count, most_seen), from)
  for _, pending in ipairs(page) do
    if #taken >= count or bytes_left <= 0 then break end
    if pending[3] >= untouched_ms then
      local entry, bytes = claim_entry(stream, group, consumer, pending, max_entry_bytes)
      taken[#taken + 1] = entry
      bytes_left = bytes_left - bytes
    end
    start = '(' .. pending[1]
  end
  seen = seen + #page
until #page == 0 or seen >= most_seen or #taken >= count or bytes_left <= 0

if #redis.call('XPENDING', stream, group, '-', '+', 1, from) == 0 then
  -- Best effort: the next call finds the same again.
  local removed = redis.pcall('XGROUP', 'DELCONSUMER', stream, group, from)
  if type(removed) == 'number' then redis.pcall('ZREM', workers, from) end
end
return taken
