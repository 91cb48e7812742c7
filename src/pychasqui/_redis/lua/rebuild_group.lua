-- Makes a group that is gone anew, around what the living still hold.
--
-- While the group is gone nobody can read, so nobody gets hold of anything more: that closes the race between those who
-- say what they hold and those who would be handed it. Atomically: this worker's word is noted, and with it its lease
-- is renewed, which keep.lua does not do meanwhile; so whoever lives past the leases of the first word has had its say.
-- When nobody is left to be waited for, the group begins behind the last entry that anybody holds, but never behind the
-- stream's last id: a stream that was restored or begun again may be behind what is held, and what is added up to there
-- would never be read. Up to where it begins each entry is pending again for its holder, by its delivery; what nobody
-- holds goes to a consumer that counts as having left, as release.lua hands it back. What comes behind is read as new.
-- Sending it twice changes nothing.
--
-- KEYS  stream, workers, words (hash: `until` and, for each consumer, what it has said)
-- ARGV  group, consumer, lease_ms, keep_key_ms, heir (the consumer that has left), idle_ms,
--       then entry id, delivery for each entry that is held
-- Returns 1 if the group is there, 0 if others have yet to say what they hold
local stream, workers, words = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, lease_ms, keep_key_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local heir, idle_ms = ARGV[5], ARGV[6]

local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1)
if pending.err and not string.find(pending.err, 'NOGROUP', 1, true) then return pending end
if not pending.err then
  redis.call('DEL', words)
  return 1
end

-- include lib/refusal.lua

-- Whatever could be refused must be so before anything is written. PERSIST comes first: it needs no memory, and what
-- follows a first write passes when memory is full; the words get their end again at once.
local length = redis.call('XLEN', stream)
local about = length > 0 and redis.call('XINFO', 'STREAM', stream)
-- Workers of other groups are in the same list and will never say anything: nobody waits past this.
local longest = redis.call('ZREVRANGE', workers, 0, 0, 'WITHSCORES')[2]
local until_ms = redis.call('HGET', words, 'until')
redis.call('PERSIST', words)
if length == 0 then
  redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
  redis.pcall('DEL', words)
  return 1
end
local claim = refusal('XCLAIM', stream, group, consumer, 0, '0-0')
if string.find(claim.err, 'NOGROUP', 1, true) then claim = nil end
local refused = claim
  or refusal('PEXPIRE', words, lease_ms)
  or refusal('PEXPIRE', workers, keep_key_ms)
  or refusal('XGROUP', 'DESTROY', stream, group)
  or refusal('XRANGE', stream, '-', '-')
  or refusal('ZRANGEBYSCORE', workers, '(0', '(0')
  or refusal('ZADD', workers, 'XX', 'GT', '-inf', '')
if refused then return refused end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
until_ms = until_ms or longest or 0
redis.call('HSET', words, 'until', until_ms, 'of ' .. consumer, table.concat(ARGV, ' ', 7))
redis.call('PEXPIRE', words, lease_ms)
redis.call('ZADD', workers, now_ms + lease_ms, consumer)
redis.call('PEXPIRE', workers, keep_key_ms)

local alive = redis.call('ZRANGEBYSCORE', workers, '(' .. now_ms, '+inf')
local must_wait = now_ms < (tonumber(until_ms) or 0)
local said = {}
for _, name in ipairs(alive) do
  said[name] = redis.call('HGET', words, 'of ' .. name)
  if must_wait and not said[name] then return 0 end
end

-- include lib/is_after.lua

local holders, deliveries, last = {}, {}, '0-0'
for _, name in ipairs(alive) do
  for id, delivery in string.gmatch(said[name] or '', '(%d+%-%d+) (%d+)') do
    delivery = math.min(tonumber(delivery), 1e9)
    -- One that lost it may still run it; whoever took it over has it by a later delivery.
    if delivery > (deliveries[id] or -1) then holders[id], deliveries[id] = name, delivery end
    if is_after(id, last) then last = id end
  end
end
for i = 1, #about, 2 do
  if about[i] == 'last-generated-id' and is_after(last, about[i + 1]) then last = about[i + 1] end
end

local after, has_left = '-', false
redis.call('XGROUP', 'CREATE', stream, group, last)
repeat
  local page = redis.call('XRANGE', stream, after, last, 'COUNT', 100)
  for _, entry in ipairs(page) do
    local id = entry[1]
    if holders[id] then
      redis.call('XCLAIM', stream, group, holders[id], 0, id, 'RETRYCOUNT', deliveries[id], 'FORCE', 'JUSTID')
    else
      redis.call('XCLAIM', stream, group, heir, 0, id, 'IDLE', idle_ms, 'RETRYCOUNT', 0, 'FORCE', 'JUSTID')
      has_left = true
    end
    after = '(' .. id
  end
until #page < 100
if has_left then redis.call('ZADD', workers, 0, heir) end
redis.pcall('DEL', words)
return 1
