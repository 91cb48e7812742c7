-- Claims the name of a worker that starts.
--
-- Atomically: the name is this worker's for as long as a lease, unless another lives or starts under it. Closes the race of two
-- that start in the same moment and would both find that no process holds a lease. It is sent once more behind the first
-- renewal of the lease, to confirm the claim: a worker that took longer than a lease to get there may find that another has
-- claimed the name since. A claim is known by its token, so each can be sent again. One without an end, or with one that no
-- worker sets, counts as none.
--
-- KEYS  workers (sorted set: consumer -> end of its lease in ms), claim (string: token; it goes kept_ms after it was set)
-- ARGV  consumer, token, lease_ms, kept_ms (no lease is longer), confirms (1: this worker has a lease under the name)
-- Returns the end of the other's lease, 0 if it has none yet, and how many ms to wait for the name: 0 if it is this worker's
local workers, claim = KEYS[1], KEYS[2]
local consumer, token, lease_ms, kept_ms, confirms =
  ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'

-- include lib/server_time.lua

local owner = redis.pcall('GET', claim)
local lease = tonumber(redis.call('ZSCORE', workers, consumer) or 0)
if owner ~= token then
  local lease_left_ms = math.min(lease - server_time_ms(math.floor), kept_ms)
  local claim_left_ms = type(owner) == 'string' and redis.call('PTTL', claim) or 0
  local is_claimed = claim_left_ms > 0 and claim_left_ms <= kept_ms
  local fresh_ms = is_claimed and claim_left_ms - kept_ms + lease_ms or 0
  if confirms and is_claimed or not confirms and lease_left_ms > 0 then
    return {math.min(lease, 2 ^ 53), math.max(lease_left_ms, 1)}
  end
  if fresh_ms > 0 then return {0, fresh_ms} end
end
redis.call('ZREM', workers, '')  -- removes nothing and needs no memory: what follows a write passes without memory
redis.call('SET', claim, token, 'PX', kept_ms)
return {0, 0}
