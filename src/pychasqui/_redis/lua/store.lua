-- Acks finished entries and stores what their handlers returned.
--
-- Atomically: an entry leaves the pending list and the stream, its result is there for as long as asked, and the next
-- job of its id is let in, as finish does it. A server without memory left takes both; one that refuses a result all the
-- same, of a user who may not write it, takes the ack: the job is done. Sending it twice stores the same twice.
--
-- KEYS  stream
-- ARGV  group, prefix of the queue's keys, ttl_ms, then for each entry: entry id, job id, is_marked (1: it may be the
--       only one of its id), is_stored (1: there is a result), result
-- Returns how many results could not be stored
local stream = KEYS[1]
local group, prefix, ttl_ms = ARGV[1], ARGV[2], ARGV[3]

local ids = {}
for i = 4, #ARGV, 5 do ids[#ids + 1] = ARGV[i] end
-- Before the results: once a script has written, the server refuses it nothing for want of memory.
redis.call('XACK', stream, group, unpack(ids))
redis.call('XDEL', stream, unpack(ids))

local refused = 0
for i = 4, #ARGV, 5 do
  local id, job_id, is_marked, is_stored, result = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  if is_stored == '1' then
    local answer = redis.pcall('SET', prefix .. ':result:' .. job_id, result, 'PX', ttl_ms)
    if answer.err then refused = refused + 1 end
  end
  if is_marked == '1' then
    local marker, index = prefix .. ':dlid:' .. job_id, prefix .. ':didx:' .. job_id
    local place = redis.pcall('GET', marker)
    if place == id or ((place == '1' or place == 'd') and redis.call('EXISTS', index) == 0) then
      redis.call('DEL', marker)
    end
  end
end
return refused
