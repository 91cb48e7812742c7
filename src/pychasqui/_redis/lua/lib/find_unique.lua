-- Finds the job that keeps others of its id out, wherever official processes may have moved it: the uniqueness key says only
-- where to look.
local entries_by_id, looked_from_ms, looked_to_ms = {}, math.huge, math.huge
local entries_left, bytes_left = 2000, 2 ^ 21  -- for one call of the script, a few milliseconds

-- Remembers which jobs are in the stream from that time on.
local function look_through(from_ms)
  local start = string.format('%.0f', math.max(0, from_ms))
  local last = looked_from_ms < math.huge and string.format('%.0f', looked_from_ms - 1) or '+'
  looked_from_ms = from_ms
  repeat
    local page = redis.call('XRANGE', stream, start, last, 'COUNT', 10)
    for _, entry in ipairs(page) do
      for i = 1, #entry[2], 2 do
        local id = entry[2][i] == 'd' and id_of(entry[2][i + 1])
        if id then entries_by_id[id] = entry[1] end
        bytes_left = bytes_left - #entry[2][i + 1]
      end
      start = '(' .. entry[1]
    end
    entries_left = entries_left - #page
    if entries_left <= 0 or bytes_left <= 0 then
      looked_to_ms = tonumber(string.match(start, '^%(?(%d+)'))
      return
    end
  until #page < 10
end

-- An official promoter does not record where it moves a job. It moves one when it is due, within a minute: a job that is not
-- in the stream from then on is done. If there is too much to look through, that is not known, and its id counts as taken for
-- an hour, as it does among official processes.
local function find_promoted(job_id, due_ms, now_ms)
  if due_ms < looked_from_ms and entries_left > 0 and bytes_left > 0 then look_through(due_ms) end
  if entries_by_id[job_id] then return {entry = entries_by_id[job_id]} end
  local is_known = due_ms >= looked_from_ms and looked_to_ms > due_ms + 60000
  if is_known or now_ms > due_ms + 3600000 then return nil end
  return {}
end

-- Returns nil if there is no such job: it is done, and no worker of ours ran it. Else a table with `entry`, its id in the
-- stream, or with `member` and `due_ms`, of the delayed set; an empty table stands for a window that has outlived its job,
-- and for a job that was not found but may be further back. And whether there is a key that official producers check.
-- The TTL of a key shows when its job was due: ours lasts kept_ms past that time, an official one for an hour past it by
-- its producer's clock, which may be a minute behind.
local function find_unique(job_id, now_ms, kept_ms)
  local unique, official = unique_key(job_id), official_key(job_id)
  local found = redis.call('MGET', unique, official, index_key(job_id))
  local location, is_official, member = found[1], found[2], found[3]
  if not (location or is_official) then return nil, nil end
  local entry_id = string.match(location or '', '^w?(%d+-%d+)$')
  if entry_id then
    local entry = redis.pcall('XRANGE', stream, entry_id, entry_id)[1]
    if entry then return {entry = entry[1]}, is_official end  -- anybody may have written the key, with leading zeros
  end
  local due_ms = member and redis.call('ZSCORE', delayed, member)
  -- Anybody may have moved it to a time with a fraction, and a TTL has none.
  if due_ms then return {member = member, due_ms = math.ceil(tonumber(due_ms))}, is_official end
  if string.sub(location or '', 1, 1) == 'w' then return {}, is_official end
  if location == 'd' then
    return find_promoted(job_id, now_ms + redis.call('PTTL', unique) - kept_ms - 1000, now_ms), is_official
  end
  if not is_official then return nil, nil end
  return find_promoted(job_id, now_ms + redis.call('PTTL', official) - 3660000, now_ms), is_official
end
