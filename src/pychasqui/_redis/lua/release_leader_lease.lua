-- Ends a lease, unless another process holds it by now.
--
-- Atomically: the lease is compared and deleted, so that a process that was held up does not end its successor's lease. Sent
-- twice, the second changes nothing.
--
-- KEYS  lease
-- ARGV  holder
-- Returns 1 if it was ours, else 0
local lease = KEYS[1]
local holder = ARGV[1]

if redis.call('GET', lease) == holder then return redis.call('DEL', lease) end
return 0
