-- Lists the repeatables that are due, for the process that leads.
--
-- Atomically: the lease is renewed, and what is due by the server's clock is listed with all that is needed to decide about
-- it, so that no other process decides meanwhile. A repeatable without a spec is removed; one whose key holds anything else,
-- or a spec that is too large, is listed with an empty one; a score that is no time gets one. An override counts only for
-- the spec that it was stored with: an official producer that replaces the spec leaves the override behind. Some of the
-- paused are checked: an official producer that removes or stores a repeatable leaves its name among them. Sent twice, it
-- lists again.
--
-- KEYS  repeat, lease (string: the leader), paused
-- ARGV  holder, lease_ms, batch, prefix of the queue's keys, longest_ms (what another's lease is cut to), most_bytes of one
--       spec, most_bytes of all specs of one reply
-- Touches the specs of what is due and of some that are paused
-- Returns {1, the server's time in ms, ms until the next is due or -1, {key, score, spec, fired, retry, bytes of the
-- spec}...}; to a process that does not lead {0, the server's time in ms, ms until the lease ends, the leader, 1 if that
-- lease was cut, for how many ms the first repeatable has been due}
local repeats, lease, paused = KEYS[1], KEYS[2], KEYS[3]
local holder, lease_ms, batch, prefix, longest_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local most_bytes, most_bytes_in_all = tonumber(ARGV[6]), tonumber(ARGV[7])
local call = redis.call

-- include lib/touch.lua
-- include lib/server_time.lua
-- include lib/due_in.lua
-- include lib/other_leader.lua
-- include lib/read_spec.lua

local function spec_key(key) return prefix .. ':repeat:spec:' .. key end

local now_ms = server_time_ms(math.floor)
local due_ms = due_in_ms(call('ZRANGE', repeats, 0, 0, 'WITHSCORES'), now_ms)
local left_ms, leader, was_cut = other_leader(lease, holder, longest_ms)
if leader then return {0, now_ms, left_ms, leader, was_cut, math.max(0, -(due_ms or 0))} end

local not_paused, without_spec, new_scores = {}, {}, {}
local some_paused = redis.pcall('ZRANDMEMBER', paused, 10)
for _, key in ipairs(some_paused.err and {} or some_paused) do
  if call('ZSCORE', repeats, key) or call('EXISTS', spec_key(key)) == 0 then
    not_paused[#not_paused + 1] = key
  end
end

local found, bytes_in_all = {1, now_ms, due_ms or -1}, 0
if due_ms and due_ms <= 0 then
  local due = call('ZRANGE', repeats, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, batch, 'WITHSCORES')
  local later = call('ZRANGE', repeats, '(' .. now_ms, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  found[3] = due_in_ms(later, now_ms) or -1
  if #due >= 2 * batch then found[3] = 0 end
  for i = 1, #due, 2 do
    local key, score = due[i], due[i + 1]
    local bytes = redis.pcall('HSTRLEN', spec_key(key), 'spec')
    if is_elsewhere(bytes) then return bytes end
    bytes_in_all = bytes_in_all + (type(bytes) == 'number' and math.min(bytes, most_bytes) or 0)
    if i > 1 and bytes_in_all > most_bytes_in_all then
      found[3] = 0
      break
    end
    local whole = math.max(0, math.floor(tonumber(score)))
    if whole ~= tonumber(score) then
      score = string.format('%.0f', whole)
      new_scores[key] = score
    end
    local reply = read_spec(spec_key(key), key, score, bytes, most_bytes)
    if reply then found[#found + 1] = reply else without_spec[#without_spec + 1] = key end
  end
end

call('SET', lease, holder, 'PX', lease_ms)
-- Best effort: the next call finds the same again.
for _, key in ipairs(not_paused) do redis.pcall('ZREM', paused, key) end
for key, score in pairs(new_scores) do redis.pcall('ZADD', repeats, score, key) end
for _, key in ipairs(without_spec) do redis.pcall('ZREM', repeats, key) end
return found
