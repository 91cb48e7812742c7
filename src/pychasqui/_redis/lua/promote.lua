-- Moves delayed jobs that are due to the stream.
--
-- Atomically: each due member leaves the delayed set and joins the stream, the index that finds it by its id goes, and
-- the marker that keeps others of its id out says where it is now. One that is not [name length][name][envelope] goes
-- to the dead letters with its bytes, and the others go on. The move needs no leader, the script being atomic; the
-- lease only spares the server the polling of all workers but one.
--
-- KEYS  delayed, stream, lease (string: who leads), dead letters, events
-- ARGV  holder, lease_ms, batch, must_lead (1: do nothing unless the lease is ours or free),
--       events_max_len (0: no events), prefix of the queue's keys
-- Returns {1 if we lead, how many were promoted, how many set aside, ms until the next is due or -1}; to one who must
-- lead and does not, {0, 0, 0, ms until the lease ends or -1}
local delayed, stream, lease, dead, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local holder, lease_ms, batch, must_lead = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local events_max_len, prefix = tonumber(ARGV[5]), ARGV[6]
local call, byte, sub = redis.call, string.byte, string.sub

local leader = call('GET', lease)
local leads = not leader or leader == holder
if leads then call('SET', lease, holder, 'PX', lease_ms) end
if must_lead == '1' and not leads then return {0, 0, 0, call('PTTL', lease)} end

local time = call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- In how many ms the next job is due, 0 if it is now, -1 if there is none.
local function next_due()
  local first = call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
  return first[2] and math.max(0, tonumber(first[2]) - now_ms) or -1
end

local due_ms = next_due()
if due_ms ~= 0 then return {leads and 1 or 0, 0, 0, due_ms} end

-- The id in an envelope that is an array with a short enough str in front, as every known producer writes it.
local function id_of(envelope)
  local array, head, size = byte(envelope, 1, 3)
  if not head or array < 0x93 or array > 0x95 then return nil end
  if head >= 0xa0 and head <= 0xbf then return sub(envelope, 3, head - 0xa0 + 2) end
  if head == 0xd9 and size then return sub(envelope, 4, size + 3) end
  if head == 0xda and #envelope >= 4 then return sub(envelope, 5, size * 256 + byte(envelope, 4) + 4) end
  return nil
end

-- The marker is looked for before the write, for the entry shows that there is one.
local function add(name, envelope, id)
  local key = id and prefix .. ':dlid:' .. id
  local marker = key and call('GET', key)
  local words = {'d', envelope}
  if name ~= '' then words[3], words[4] = 'n', name end
  if marker and #id == 26 then words[#words + 1], words[#words + 2] = 'u', '1' end
  local entry_id = call('XADD', stream, '*', unpack(words))
  if id then call('DEL', prefix .. ':didx:' .. id) end
  if marker then call('SET', key, (sub(marker, 1, 1) == 'w' and 'w' or '') .. entry_id, 'KEEPTTL') end
end

local function tell(name, id)
  local words = {'e', 'waiting', 'id', id, 'ts', now_ms}
  if name ~= '' then words[7], words[8] = 'n', name end
  redis.pcall('XADD', events, 'MAXLEN', '~', events_max_len, '*', unpack(words))
end

local promoted, bad = 0, 0
for _, member in ipairs(call('ZRANGE', delayed, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, batch)) do
  local size = #member >= 4 and struct.unpack('<I4', member)
  if size and 4 + size < #member then
    local name, envelope = sub(member, 5, 4 + size), sub(member, 5 + size)
    local id = id_of(envelope)
    add(name, envelope, id)
    if events_max_len > 0 and id then tell(name, id) end
    promoted = promoted + 1
  else
    call('XADD', dead, '*', 'd', member, 'source_id', '', 'reason', 'malformed', 'detail', 'not a delayed member')
    bad = bad + 1
  end
  call('ZREM', delayed, member)
end

return {leads and 1 or 0, promoted, bad, next_due()}
