-- Moves delayed jobs that are due to the stream.
--
-- Atomically: each due member leaves the delayed set and joins the stream; one that is not [name length][name]
-- [envelope] goes to the dead letters with its bytes, and the others go on. The move needs no leader, the script being
-- atomic; the lease only spares the server the polling of all workers but one.
--
-- KEYS  delayed, stream, lease (string: who leads), dead letters
-- ARGV  holder, lease_ms, batch, must_lead (1: do nothing unless the lease is ours or free)
-- Returns {1 if we lead, how many were promoted, how many set aside, ms until the next is due or -1}
local delayed, stream, lease, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder, lease_ms, batch, must_lead = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local leader = redis.call('GET', lease)
local leads = not leader or leader == holder
if leads then redis.call('SET', lease, holder, 'PX', lease_ms) end
if must_lead == '1' and not leads then return {0, 0, 0, -1} end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGE', delayed, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, batch)
local promoted, bad = 0, 0
for _, member in ipairs(due) do
  local size
  if #member >= 4 then
    local a, b, c, d = string.byte(member, 1, 4)
    size = a + b * 256 + c * 65536 + d * 16777216
  end
  if size and 4 + size < #member then
    local name, envelope = string.sub(member, 5, 4 + size), string.sub(member, 5 + size)
    if name == '' then
      redis.call('XADD', stream, '*', 'd', envelope)
    else
      redis.call('XADD', stream, '*', 'd', envelope, 'n', name)
    end
    promoted = promoted + 1
  else
    redis.call('XADD', dead, '*', 'd', member, 'source_id', '', 'reason', 'malformed', 'detail', 'not a delayed member')
    bad = bad + 1
  end
  redis.call('ZREM', delayed, member)
end

local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
local next_ms = -1
if first[2] then next_ms = math.max(0, tonumber(first[2]) - now_ms) end
return {leads and 1 or 0, promoted, bad, next_ms}
