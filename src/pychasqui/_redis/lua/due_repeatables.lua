-- Lists the repeatables that are due, for the one who leads.
--
-- Atomically: the lease is ours for another while, and what is due by the server's clock is listed with all that is
-- needed to decide about it. A repeatable without a spec is forgotten; one whose key holds something else is listed
-- with an empty spec; a score that is no time gets one.
--
-- KEYS  repeat, lease (string: who leads)
-- ARGV  holder, lease_ms, batch, prefix of the queue's keys
-- Returns {1 if we lead, the server's time in ms, ms until the next is due or -1, {key, score, spec, fired, retry}...};
-- to one who does not lead {0, 0, ms until the lease ends or -1}
local repeats, lease = KEYS[1], KEYS[2]
local holder, lease_ms, batch, prefix = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local call = redis.call

local leader = call('GET', lease)
if leader and leader ~= holder then return {0, 0, call('PTTL', lease)} end
call('SET', lease, holder, 'PX', lease_ms)

local time = call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = {1, now_ms, -1}
local first = call('ZRANGE', repeats, 0, 0, 'WITHSCORES')
if not first[2] then return found end
if tonumber(first[2]) > now_ms then
  found[3] = tonumber(first[2]) - now_ms
  return found
end

local due = call('ZRANGE', repeats, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, batch, 'WITHSCORES')
for i = 1, #due, 2 do
  local key, score = due[i], due[i + 1]
  local whole = math.max(0, math.floor(tonumber(score)))
  if whole ~= tonumber(score) then
    score = string.format('%.0f', whole)
    call('ZADD', repeats, score, key)
  end
  local fields = redis.pcall('HMGET', prefix .. ':repeat:spec:' .. key, 'spec', 'fired', 'retry')
  if fields.err then fields = {'', false, false} end
  if fields[1] then
    found[#found + 1] = {key, score, fields[1], fields[2] or '0', fields[3] or ''}
  else
    call('ZREM', repeats, key)
  end
end
local next = call('ZRANGE', repeats, '(' .. now_ms, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
if #due >= 2 * batch then found[3] = 0 elseif next[2] then found[3] = tonumber(next[2]) - now_ms end
return found
