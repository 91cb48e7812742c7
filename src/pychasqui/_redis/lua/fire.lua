-- Fires repeatables: adds their jobs to the stream and sets the time at which each fires next.
--
-- Atomically, for each repeatable: only if its score and its spec are still those that the caller has planned by, its jobs
-- join the stream, its count of fires grows, and it gets its next score. Without a next score it is removed, with its spec.
-- This closes the race between a leader that was held up and its successor, and the race with an upsert. Sent twice, it fires
-- nothing twice. If the stream refuses the jobs of a repeatable, or its spec cannot be written, that repeatable stays as it
-- is, and the others fire.
--
-- KEYS  stream, repeat (sorted set: key of a repeatable -> when it fires next, in ms), then the hash of each repeatable
--       (fields spec and fired)
-- ARGV  for each repeatable: key, score, spec, next score (empty: none), name of its jobs (may be empty), number of jobs,
--       envelope of each job
-- Returns a list: 1 for each repeatable that has its next score or is removed, 0 for each that stays as it is. If the server
-- has refused something and no repeatable has fired, returns the error instead
local stream, repeats = KEYS[1], KEYS[2]
local call, pcall = redis.call, redis.pcall

-- include lib/refusal.lua
-- include lib/absent_member.lua
-- include lib/add_entry.lua

-- No job must be added whose repeatable cannot be moved on, or else it fires again and again. No score is below -inf.
-- ZADD comes first: without memory it is refused, and what follows a write is not.
local refused = refusal('ZADD', repeats, 'XX', 'GT', '-inf', '')
  or refusal('XDEL', stream, '0-0')
  or refusal('ZREM', repeats, absent_member(repeats))
if refused then return refused end

local function take_back(added)
  for _, id in ipairs(added) do call('XDEL', stream, id) end
end

-- Adds all of a repeatable's jobs or none; returns their ids, and the error if the stream refuses them.
local function add_jobs(name, first, last)
  local added = {}
  for j = first, last do
    local id = add_entry(stream, name, ARGV[j], false)
    if type(id) == 'table' then
      take_back(added)
      return {}, id
    end
    added[#added + 1] = id
  end
  return added, nil
end

local moved, any, why, i = {}, false, nil, 1
while i <= #ARGV do
  local key, score, spec, next_score, name, jobs =
    ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], tonumber(ARGV[i + 5])
  local hash = KEYS[3 + #moved]
  local is_same = tonumber(call('ZSCORE', repeats, key) or -1) == score
  local fields = is_same and pcall('HMGET', hash, 'spec', 'fired')
  is_same = is_same and fields[1] == spec
  if is_same then
    local added, trouble = add_jobs(name, i + 6, i + 5 + jobs)
    if not trouble and next_score == '' then
      trouble = refusal('DEL', hash)
    elseif not trouble and jobs > 0 then
      -- The count is computed here: HINCRBY refuses one that is written otherwise than it would write it.
      trouble = refusal('HSET', hash, 'fired', string.format('%.0f', (tonumber(fields[2] or 0) or 0) + jobs))
    end
    if trouble then
      take_back(added)
      is_same, why = false, trouble
    elseif next_score == '' then
      call('ZREM', repeats, key)
    else
      call('ZADD', repeats, next_score, key)
    end
  end
  moved[#moved + 1] = is_same and 1 or 0
  any = any or is_same
  i = i + 6 + jobs
end
if why and not any then return why end
return moved
