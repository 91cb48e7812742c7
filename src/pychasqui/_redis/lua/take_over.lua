-- Takes over entries of a worker that is dead or has left.
--
-- Atomically: if the worker's lease is still the one that was judged, up to `count` of its entries become ours, each counted
-- as one more delivery; with none left its name goes. Closes the race with a worker that has come back. Entries that were
-- deleted while pending are dropped. If the reply is lost, the entries are pending for us and found by list_pending. Sent
-- twice, it takes over the next ones.
--
-- What was not touched since that lease ended is the dead worker's. What was delivered under its name later may belong to
-- a consumer without a lease that uses the same name, and is taken as claim_idle takes such entries: once it has been idle
-- for `min_idle_ms`. It may also be the dead worker's own: a server that hangs answers a waiting read when it goes on, after
-- the lease. A call looks at the first `most_seen` entries, however many are pending: those behind many fresh ones come once
-- the fresh ones are acked, or idle, too.
--
-- KEYS  stream, workers
-- ARGV  group, consumer (we), from (the dead), lease (the score that was judged), min_idle_ms, count, max_bytes (the last
--       entry may go beyond it), max_entry_bytes (of a larger entry only the size is sent)
-- Returns false if the lease has moved, else a list of {id, fields or size, earlier deliveries}, empty if there is none
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
