-- Moves delayed jobs that are due to the stream. Only the leader does: its lease spares the server the polling of the others.
--
-- Atomically: each due job joins the stream and leaves the delayed set, the key that finds it there by its id is removed, and
-- its uniqueness key names the new entry. If one of these two keys cannot be written, it counts as missing from then on; one
-- that belongs to another job of the same id stays as it is. A member that is not [length of the name][name][envelope] moves to
-- the dead letters, with its bytes. What the stream or the dead letters refuse stays delayed, and the others move. A call ends
-- once it has moved `max_bytes`: the answer says that more is due, and the caller calls again. Members that fill a call and are
-- refused are due again in a minute. Sent twice, it moves what is due then.
--
-- KEYS  delayed (sorted set: member -> when it is due, in ms), stream, lease (string: the leader), dead letters, events
-- ARGV  holder (the process that calls), lease_ms, batch (how many jobs at most), longest_ms (a lease of another that ends
--       later than this is cut to it), events_max_len (0: no events), prefix of the queue's keys, max_bytes (the last member
--       may go beyond it)
-- Touches the keys of each due job before the first write
-- Returns to the leader {1, how many jobs were promoted, how many members were buried, in how many ms the next is due (-1:
-- nothing is delayed), the error that others were refused with or empty}. Returns to any other process {0, 0, 0, in how many
-- ms the lease ends, the leader, 1 if its lease was cut, for how many ms the first job has been due}
local delayed, stream, lease, dead, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local holder, lease_ms, batch, longest_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local events_max_len, prefix, max_bytes = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local call = redis.call

-- include lib/refusal.lua
-- include lib/touch.lua
-- include lib/job_keys.lua
-- include lib/id_of.lua
-- include lib/split_member.lua
-- include lib/other_leader.lua
-- include lib/take_lease.lua
-- include lib/server_time.lua
-- include lib/due_in.lua
-- include lib/read_due.lua
-- include lib/read_unique_keys.lua
-- include lib/add_entry.lua
-- include lib/point_at_entry.lua
-- include lib/is_index_of_other.lua
-- include lib/names_entry.lua
-- include lib/keys_follow.lua
-- include lib/remove_due.lua

local now_ms = server_time_ms(math.floor)
local first_ms = due_in_ms(call('ZRANGE', delayed, 0, 0, 'WITHSCORES'), now_ms)
local left_ms, leader, was_cut = other_leader(lease, holder, longest_ms)
if leader then return {0, 0, 0, left_ms, leader, was_cut, math.max(0, -(first_ms or 0))} end

local promoted, buried, why = 0, 0, ''

-- The lease is written last: a process that is refused everything must not keep others from leading.
local function answer(kept)
  local next_ms = due_in_ms(call('ZRANGE', delayed, kept, kept, 'WITHSCORES'), now_ms)
  if why == '' or promoted + buried > 0 then take_lease(lease, holder, lease_ms) end
  return {1, promoted, buried, next_ms and math.max(0, next_ms) or -1, why}
end

if not first_ms or first_ms > 0 then return answer(0) end

-- include lib/write_waiting_event.lua
-- include lib/bury_member.lua
local members = read_due(delayed, now_ms, batch, max_bytes)
local names, envelopes, ids, unique_keys, index_keys = {}, {}, {}, {}, {}
for i = 1, #members do  -- hot: ipairs takes 0.1 us a job longer
  local name, envelope = split_member(members[i])
  local job_id = id_of(envelope)
  names[i], envelopes[i], ids[i] = name, envelope, job_id
  unique_keys[i], index_keys[i] = unique_key(job_id or ''), index_key(job_id or '')
end
local locations, elsewhere = read_unique_keys(unique_keys)
-- Nothing must be added that cannot be removed here.
local refused = elsewhere or touch(index_keys) or refusal('ZREMRANGEBYRANK', delayed, 1, 0)
if refused then return refused end

local kept, kept_count, closed, moot = {}, 0, nil, {}
for i = 1, #members do
  local is_job, location = envelopes[i] ~= '', ids[i] and locations[i]
  local id = not is_job and bury_member(members[i])
    or closed
    or add_entry(stream, names[i], envelopes[i], location and hides_its_origin(ids[i]))
  if type(id) == 'table' then
    why, kept[i] = id.err, true
    if is_job then closed, kept_count = id, kept_count + 1 end  -- a stream that refuses one job refuses all
  else
    if is_job then promoted = promoted + 1 else buried = buried + 1 end
    if ids[i] and keys_follow(ids[i], members[i], unique_keys[i], location, id) then moot[#moot + 1] = index_keys[i] end
    if events_max_len > 0 and ids[i] then write_waiting_event(names[i], ids[i]) end
  end
end
remove_due(delayed, #members, kept, moot)
return answer(kept_count + put_off_if_in_the_way(#members))
