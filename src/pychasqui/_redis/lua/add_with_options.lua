-- Adds a batch of jobs of which some are to run later, or to be the only one of their id; at most once, as add does.
--
-- Atomically, for each job: either a job of its id is there already, and nothing is added, or the waiting one gets the
-- new data; or the job joins the stream or, if it is due later by the server's clock, the delayed set, with the index
-- that finds it by its id and the marker that says where it is. Closes the race between several who add one id, delayed
-- or not. Official producers see the jobs of ours that are delayed, for as long as they see their own, and no others.
--
-- KEYS  stream, ledger (hash: slot -> "number answers"), delayed
-- ARGV  slot, number, ledger_ttl_ms, max_stream_len (0: no bound), needed, prefix of the queue's keys, kept_ms,
--       then for each job: name (may be empty), envelope, id, due ("": now, "+ms": from now, "ms": at that time),
--       only ("": any number of that id, "keep": the first, "replace": the first with the last data, "postpone": the
--       last), window_ms (how long a job keeps others of its id out, 0: until it is done)
--       needed: how many jobs there must be room for, or none is taken; 0: as many as there is room for
-- Returns a letter for each job: n it is new, d another of its id is there, r it has replaced that one, f no room
local stream, ledger, delayed = KEYS[1], KEYS[2], KEYS[3]
local slot, number, ledger_ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local max_stream_len, needed, prefix, kept_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local call = redis.call

local seen = call('HGET', ledger, slot)
local last, answered = string.match(seen or '', '^(%d+) (%w*)$')
if last and tonumber(last) >= number then return answered end

-- include lib/refusal.lua
-- include lib/id_of.lua
-- include lib/is_after.lua
-- include lib/find_unique.lua
-- include lib/remove_waiting.lua
-- include lib/refusal_to_add.lua

-- Whatever could be refused must be so before the first job is added.
local refused = refusal_to_add()
if refused then return refused end

local time = call('TIME')
local now_ms = time[1] * 1000 + math.ceil(time[2] / 1000)  -- never early
local room = math.huge
if max_stream_len > 0 then room = max_stream_len - call('XLEN', stream) end
local is_refused = room < needed
if needed > 0 then room = math.huge end  -- a batch that asks is taken whole
local soonest = math.huge
local longest_ms = 9e15  -- Redis takes no TTL much longer than this
local answers, failure = {}, nil

-- include lib/store_job.lua

local function add(name, envelope, id, due_ms, only, window_ms)
  local found, is_official
  if only ~= '' then found, is_official = find_unique(id, now_ms, kept_ms) end
  if found and (only == 'keep' or not is_waiting(found)) then return 'd' end
  if found and only == 'replace' then due_ms = found.due_ms or 0 end
  local place, member
  if due_ms > now_ms then
    place, member = delay(name, envelope, id, due_ms)
  elseif room >= 1 or found then
    place = add_to_stream(name, envelope, id, only ~= '')
    room = room - 1
  end
  if not place then return 'f' end
  if found and (found.entry or found.member ~= member) then remove_waiting(found) end
  if found and found.entry then room = room + 1 end
  if only ~= '' then mark(id, place, due_ms, window_ms, is_official) end
  return found and 'r' or 'n'
end

for i = 8, #ARGV, 6 do
  local due_ms, relative = 0, string.match(ARGV[i + 3], '^%+(%d+)$')
  if relative then due_ms = now_ms + tonumber(relative) elseif ARGV[i + 3] ~= '' then due_ms = tonumber(ARGV[i + 3]) end
  if is_refused then
    answers[#answers + 1] = 'f'
  else
    answers[#answers + 1] = add(ARGV[i], ARGV[i + 1], ARGV[i + 2], due_ms, ARGV[i + 4], tonumber(ARGV[i + 5]))
  end
end
local answer = table.concat(answers)
if failure and not string.find(answer, '[nr]') then return failure end

-- Tell promoters that sleep, if the next job is due sooner than the one they know of. They look by themselves, too.
if soonest < math.huge then
  local first = call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
  if tonumber(first[2]) >= soonest then redis.pcall('PUBLISH', prefix .. ':due', soonest - now_ms) end
end

redis.pcall('HSET', ledger, slot, ARGV[2] .. ' ' .. answer)
redis.pcall('PEXPIRE', ledger, ledger_ttl_ms)
return answer
