-- Pauses a queue, also on a server that is full.
--
-- PERSIST changes nothing and needs no memory, and once a script has written, the server refuses it nothing for want of memory.
-- A SET alone would be refused. Sent twice, it changes nothing.
--
-- KEYS  paused (string: there while the queue is paused)
-- Returns 1
local paused = KEYS[1]

redis.pcall('PERSIST', paused)
redis.call('SET', paused, '1')
return 1
