-- Acks finished entries and deletes them, for servers without XACKDEL.
--
-- Atomically: an entry leaves the pending list and the stream together. A connection that is cut between the two cannot
-- leave an acked entry in the stream, where no worker would see it again. Sent twice, it changes nothing.
--
-- KEYS  stream
-- ARGV  group, then entry ids
-- Returns how many of the entries were still pending
local stream = KEYS[1]
local group, ids = ARGV[1], {unpack(ARGV, 2)}

redis.call('XDEL', stream, '0-0')  -- changes nothing: a user without the right to delete must not ack either
local acked = redis.call('XACK', stream, group, unpack(ids))
redis.call('XDEL', stream, unpack(ids))
return acked
