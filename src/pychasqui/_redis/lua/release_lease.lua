-- Lets go of a lease, unless somebody else holds it by now.
--
-- KEYS  lease
-- ARGV  holder
-- Returns 1 if it was ours, else 0
local lease, holder = KEYS[1], ARGV[1]
if redis.call('GET', lease) == holder then return redis.call('DEL', lease) end
return 0
