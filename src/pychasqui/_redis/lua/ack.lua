-- Acks finished entries and deletes them, for servers without XACKDEL.
--
-- Atomically: an entry leaves the pending list and the stream together, so that a connection cut between the two can
-- never leave an acked entry in the stream, where no worker would see it again. Sending it twice changes nothing.
--
-- KEYS  stream
-- ARGV  group, then entry ids
-- Returns how many of the entries were still pending
local stream, group = KEYS[1], ARGV[1]
local ids = {unpack(ARGV, 2)}
redis.call('XDEL', stream, '0-0')  -- changes nothing: a user who may not delete must not ack either
local acked = redis.call('XACK', stream, group, unpack(ids))
redis.call('XDEL', stream, unpack(ids))
return acked
