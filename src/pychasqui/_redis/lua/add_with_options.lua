-- Adds a batch of jobs of which some run later or are the only one of their id; at most once, as add does.
--
-- Atomically, for each job: either a job of its id is there already, and nothing is added, or the waiting one gets the new
-- data; or the job joins the stream or, if it is due later by the server's clock, the delayed set, with the key that finds
-- it by its id and the uniqueness key that says where it is. Closes the race between producers that add one id, delayed or
-- not. Sent twice, the first answer is returned again. Official producers see the delayed jobs of ours, for as long as
-- they see their own, and no others.
--
-- KEYS  stream, ledger (hash: slot -> "number answers"), delayed
-- ARGV  slot, number, ledger_ttl_ms, max_stream_len (0: no bound), needed (how many jobs must fit, or none is taken; 0: as
--       many as fit), prefix of the queue's keys, kept_ms, channel for due times, then for each job: name (may be empty),
--       envelope, id, due ("": now, "+ms": from now, "ms": at that time), only ("": any number of that id, "keep": the
--       first, "replace": the first with the last data, "postpone": the last), window_ms (how long a job keeps others of its
--       id out, 0: until it is done), expires_ms (how long it may wait for its start, 0: any time; the envelope's last eight
--       bytes are an unsigned int that becomes the time at which it expires)
-- Touches the keys of each job
-- Returns a character for each job: n it is new, d another of its id is there, r it has replaced that one, f it did not fit
local stream, ledger, delayed = KEYS[1], KEYS[2], KEYS[3]
local slot, number, ledger_ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local max_stream_len, needed, prefix, kept_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local due_channel, first_job, words_a_job = ARGV[8], 9, 7
local call = redis.call

local seen = call('HGET', ledger, slot)
local last, answered = string.match(seen or '', '^(%d+) (%w*)$')
if last and tonumber(last) >= number then return answered end

-- include lib/refusal.lua
-- include lib/touch.lua
-- include lib/job_keys.lua
-- include lib/id_of.lua
-- include lib/is_after.lua
-- include lib/server_time.lua
-- include lib/longest_ttl.lua
-- include lib/find_unique.lua
-- include lib/is_unread.lua
-- include lib/remove_waiting.lua
-- include lib/server_refusal_of_add.lua
-- include lib/add_entry.lua
-- include lib/publish.lua

-- Whatever could be refused must be refused before the first job is added.
local refused = server_refusal_of_add()
if refused then return refused end

local now_ms = server_time_ms(math.ceil)
local room = math.huge
if max_stream_len > 0 then room = max_stream_len - call('XLEN', stream) end
local is_full = needed > 0 and room < needed
if needed > 0 then room = math.huge end  -- such a batch is taken whole
local soonest, answers, failure = math.huge, {}, nil

-- The last that could be refused: a batch that was added must be on record.
call('HSET', ledger, slot, seen or '0 0')
redis.pcall('PEXPIRE', ledger, ledger_ttl_ms)

-- include lib/store_job.lua
-- include lib/with_expiry.lua
-- include lib/add_unless_taken.lua

for i = first_job, #ARGV, words_a_job do answers[#answers + 1] = is_full and 'f' or add_unless_taken(i) end
local answer = table.concat(answers)
if failure and not string.find(answer, '[nr]') then
  if not seen then redis.pcall('HDEL', ledger, slot) end
  return failure
end

-- Wakes promoters that sleep, if a job is due sooner than the one they know of. They also look by themselves.
if soonest < math.huge and redis.pcall('ZCOUNT', delayed, '-inf', '(' .. string.format('%.0f', soonest)) == 0 then
  publish(due_channel, soonest - now_ms)
end

call('HSET', ledger, slot, ARGV[2] .. ' ' .. answer)
return answer
