-- Acks finished entries and stores what their handlers returned.
--
-- Atomically: an entry leaves the pending list and the stream, its result is stored, and the next job of its id is let in,
-- as by ack_unique. No job is done without its result: a server without memory left takes both. A result that is refused
-- all the same, because the user may not write it, does not hold the ack up: the job is done. Sent twice, it stores the
-- same results again.
--
-- KEYS  stream, delayed
-- ARGV  group, prefix of the queue's keys, ttl_ms, at_once (1: the server has XACKDEL and MSETEX), number of entries,
--       number of results, then the entries' ids, for each result: its key, itself, and for each entry whose job may be the
--       only one of its id: entry id, job id
-- Touches the keys of the results, which are not in KEYS because a user without the right to one must be able to ack, and
-- the keys of each job that may be the only one of its id
-- Returns how many results could not be stored
local stream, delayed = KEYS[1], KEYS[2]
local group, prefix, ttl_ms, at_once = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local entries, results = tonumber(ARGV[5]), tonumber(ARGV[6])
local last_entry = 6 + entries
local last_result = last_entry + 2 * results

-- include lib/refusal.lua
-- include lib/touch.lua
-- include lib/job_keys.lua
-- include lib/release_id.lua

-- A new result is a key that does not exist, and every such key shows a slot that moves: the first shows it, or the last if
-- this is sent again behind further jobs.
local keys = {}
if results > 0 then keys = {ARGV[last_entry + 1], ARGV[last_result - 1]} end
for i = last_result + 1, #ARGV, 2 do append_job_keys(keys, ARGV[i + 1]) end
local refusing = touch(keys) or refusal('XACK', stream, group, '0-0') or refusal('XDEL', stream, '0-0')
if refusing then return refusing end

-- Before the results: once a script has written, the server refuses it nothing for want of memory.
local are_gone = at_once
if at_once then
  local codes = redis.pcall('XACKDEL', stream, group, 'IDS', entries, unpack(ARGV, 7, last_entry))
  are_gone = not codes.err  -- a service may refuse it
  for _, code in ipairs(codes) do are_gone = are_gone and code == 1 end
end
if not are_gone then  -- an entry that is not pending, because the group is missing or was recreated, is done anyway
  redis.call('XACK', stream, group, unpack(ARGV, 7, last_entry))
  redis.call('XDEL', stream, unpack(ARGV, 7, last_entry))
end

local is_stored = false
if at_once and results > 0 then
  local words = {unpack(ARGV, last_entry + 1, last_result)}
  words[#words + 1] = 'PX'
  words[#words + 1] = ttl_ms
  is_stored = redis.pcall('MSETEX', results, unpack(words)) == 1
end
local refused = 0
if not is_stored then
  for i = last_entry + 1, last_result, 2 do
    if redis.pcall('SET', ARGV[i], ARGV[i + 1], 'PX', ttl_ms).err then refused = refused + 1 end
  end
end

for i = last_result + 1, #ARGV, 2 do release_id(ARGV[i + 1], ARGV[i]) end
return refused
