-- Ends the lease of a process that leads, unless another process holds the lease by now.
--
-- Atomically: the lease is compared and deleted, so that a process that was held up does not end the lease of its successor.
-- Sent twice, the second call changes nothing.
--
-- KEYS  lease (string: the process that leads)
-- ARGV  holder (the process that calls)
-- Returns 1 if the lease was this process's and is gone, else 0
local lease = KEYS[1]
local holder = ARGV[1]

if redis.call('GET', lease) == holder then return redis.call('DEL', lease) end
return 0
