-- Moves repeatables that cannot be fired to the dead letters, with their bytes.
--
-- Atomically, for each: only if its score and its spec are still what was seen, it joins the dead letters and goes. Closes
-- the race with an upsert that stores a better spec. A key that holds anything but a spec goes as one with an empty spec. A
-- repeatable that the dead letters refuse is due again later, so that it holds up nothing else. Sent twice, it changes
-- nothing.
--
-- KEYS  repeat, dead letters, then the spec (hash) of each repeatable
-- ARGV  again_ms (when a refused one is due again), then for each: key, score, bytes of its spec, the spec (empty: too large
--       to be read), detail
-- Returns {how many were moved, the error of the dead letters or empty}
local repeats, dead = KEYS[1], KEYS[2]
local again_ms = ARGV[1]
local call, pcall = redis.call, redis.pcall

-- include lib/refusal.lua
-- include lib/absent_member.lua

local refused = refusal('ZADD', repeats, 'XX', 'GT', '-inf', '')
  or refusal('ZREM', repeats, absent_member(repeats))
if refused then return refused end

-- Writes the dead letter before the spec goes, and deletes it if that is refused. Returns the error.
local function move_bytes(spec, hash, detail)
  local trouble = refusal('XDEL', dead, '0-0')
  if trouble then return trouble end
  local letter = pcall('XADD', dead, '*', 'd', spec, 'source_id', '', 'reason', 'malformed', 'detail', detail)
  if type(letter) == 'table' then return letter end
  trouble = refusal('DEL', hash)
  if trouble then call('XDEL', dead, letter) end
  return trouble
end

local moved, why = 0, ''
for i = 2, #ARGV, 5 do
  local key, score, bytes, spec, detail =
    ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4]
  local hash = KEYS[3 + (i - 2) / 5]
  local stored = pcall('HGET', hash, 'spec')
  if type(stored) == 'table' then stored = '' end
  local is_same = stored and #stored == bytes and (spec == '' or stored == spec)
  if is_same and tonumber(call('ZSCORE', repeats, key) or -1) == score then
    local trouble = move_bytes(stored, hash, detail)
    if trouble then
      why = trouble.err
      call('ZADD', repeats, 'XX', again_ms, key)
    else
      call('ZREM', repeats, key)
      moved = moved + 1
    end
  end
end
return {moved, why}
