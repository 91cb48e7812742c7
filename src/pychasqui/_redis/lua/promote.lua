-- Moves delayed jobs that are due to the stream.
--
-- Atomically: each due member joins the stream and leaves the delayed set, the index that finds it by its id goes, and
-- the marker that keeps others of its id out says where it is now; one of these two that cannot be written counts as
-- none from then on. One that is not [name length][name][envelope] goes to the dead letters with its bytes, and the
-- others go on. What the stream or the dead letters refuse stays delayed, and holds up nothing else. Only the one who
-- leads moves anything. The move would be safe without that, the script being atomic: the lease spares the server the
-- polling of the others. A call ends when it has moved `max_bytes`, so that it does not hold up everybody else on the
-- server; the caller then sees that more is due, and calls again.
--
-- KEYS  delayed, stream, lease (string: who leads), dead letters, events
-- ARGV  holder, lease_ms, batch, longest_ms (what another's lease is cut to), events_max_len (0: no events), prefix of the
--       queue's keys, max_bytes (the last member may go beyond it)
-- Returns {1, how many were promoted, how many set aside, ms until the next is due or -1, the error that others were
-- refused with, or empty}; to one who does not lead {0, 0, 0, ms until the lease ends, who leads, 1 if that lease was cut,
-- for how many ms the first job has been due}
local delayed, stream, lease, dead, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local holder, lease_ms, batch, longest_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local events_max_len, prefix, bytes_left = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local call, pcall, sub = redis.call, redis.pcall, string.sub

-- include lib/id_of.lua
-- include lib/other_leader.lua
-- include lib/refusal.lua

local time = call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local promoted, set_aside, kept, why = 0, 0, 0, ''  -- those that were refused are kept, at the front of the set

-- For how many ms the first job has been due; below 0 if it is not yet, nil if there is none. A score may be infinite.
local function overdue()
  local first = call('ZRANGE', delayed, kept, kept, 'WITHSCORES')
  return first[2] and math.max(-9e15, math.min(now_ms - tonumber(first[2]), 9e15))
end

-- In how many ms the next job is due, 0 if it is now, -1 if there is none.
local function next_due()
  local overdue_ms = overdue()
  return overdue_ms and math.max(0, -overdue_ms) or -1
end

-- The lease comes last: one who is refused everything must not keep others from leading.
local function answer(due_ms)
  if why == '' or promoted + set_aside > 0 then pcall('SET', lease, holder, 'PX', lease_ms) end
  return {1, promoted, set_aside, due_ms, why}
end

local overdue_ms = overdue()
local left_ms, leader, was_cut = other_leader(lease, holder, longest_ms)
if leader then return {0, 0, 0, left_ms, leader, was_cut, math.max(0, overdue_ms or 0)} end

local due_ms = next_due()
if due_ms ~= 0 then return answer(due_ms) end

-- Nothing must be added that cannot be removed here.
local refused = refusal('ZREMRANGEBYRANK', delayed, 1, 0)
if refused then return refused end

-- Returns the new entry's id, or the error. The entry shows that there may be a marker, as add_with_options does it.
local function add(name, envelope, is_marked)
  if is_marked then
    local words = {'d', envelope, 'n', name, 'u', '1'}
    return pcall('XADD', stream, '*', unpack(name ~= '' and words or {'d', envelope, 'u', '1'}))
  end
  if name == '' then return pcall('XADD', stream, '*', 'd', envelope) end
  return pcall('XADD', stream, '*', 'd', envelope, 'n', name)
end

local function add_letter(member)
  return pcall('XADD', dead, '*', 'd', member, 'source_id', '', 'reason', 'malformed', 'detail', 'not a delayed member')
end

local function tell(name, id)
  local words = {'e', 'waiting', 'id', id, 'ts', now_ms}
  if name ~= '' then words[7], words[8] = 'n', name end
  pcall('XADD', events, 'MAXLEN', '~', events_max_len, '*', unpack(words))
end

-- Removes the members at these ranks, in rising order, with their indexes.
-- Hot: 4 us a job, against 5.5 if what all have in common were asked and removed for each.
local function remove(ranks, indexes)
  if #ranks == 0 then return end
  if ranks[#ranks] - ranks[1] == #ranks - 1 then
    call('ZREMRANGEBYRANK', delayed, ranks[1], ranks[#ranks])
  else
    for i = #ranks, 1, -1 do call('ZREMRANGEBYRANK', delayed, ranks[i], ranks[i]) end
  end
  pcall('DEL', unpack(indexes))
end

-- What has been due for the longest, up to that many members and as many bytes as are left. No command tells the size of
-- a member without bringing it here, so they come in small pages, and one by one once they are large.
local function first_due(most)
  local due = math.min(most, call('ZCOUNT', delayed, '-inf', now_ms) - kept)
  local members, largest = {}, bytes_left
  while #members < due and bytes_left > 0 do
    local page = 16 * largest <= bytes_left and 16 or 1
    local first, last = kept + #members, kept + math.min(#members + page, due) - 1
    for _, member in ipairs(call('ZRANGE', delayed, first, last)) do
      if bytes_left <= 0 then break end
      members[#members + 1] = member
      bytes_left = bytes_left - #member
      largest = #members == 1 and #member or math.max(largest, #member)
    end
  end
  return members
end

-- Moves what has been due for the longest, up to `most`; returns how many there were.
local function move(most)
  local members = first_due(most)
  if #members == 0 then return 0 end
  local names, envelopes, ids, markers_at = {}, {}, {}, {}
  for i, member in ipairs(members) do
    local size, id = #member >= 4 and struct.unpack('<I4', member), nil
    if size and 4 + size < #member then
      names[i], envelopes[i] = sub(member, 5, 4 + size), sub(member, 5 + size)
      id = id_of(envelopes[i])
    end
    ids[i], markers_at[i] = id, prefix .. ':unique:' .. (id or '')
  end
  local markers = pcall('MGET', unpack(markers_at))
  local ranks, indexes, bad, closed = {}, {}, 0, nil
  for i, member in ipairs(members) do
    local id, marker = ids[i], ids[i] and markers[i]
    local place
    if envelopes[i] then
      place = closed or add(names[i], envelopes[i], marker and #id >= 26)
    else
      place = add_letter(member)
    end
    if type(place) == 'table' then
      why, bytes_left = place.err, bytes_left + #member
      if envelopes[i] then closed = place end  -- a stream that refuses one job refuses all
    else
      ranks[#ranks + 1], indexes[#indexes + 1] = kept + i - 1, prefix .. ':didx:' .. (id or '')
      if not envelopes[i] then bad = bad + 1 end
      if marker then pcall('SET', markers_at[i], (sub(marker, 1, 1) == 'w' and 'w' or '') .. place, 'KEEPTTL') end
      if events_max_len > 0 and id then tell(names[i], id) end
    end
  end
  remove(ranks, indexes)
  kept, promoted, set_aside = kept + #members - #ranks, promoted + #ranks - bad, set_aside + bad
  return #members
end

repeat
  local most = math.min(1000, batch - promoted - set_aside - kept)  -- Lua's unpack takes about 8,000
until move(most) < most or promoted + set_aside + kept >= batch
return answer(next_due())
