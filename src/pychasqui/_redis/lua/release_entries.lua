-- Hands unstarted entries back to the group: anybody may take them at once, and the delivery is not counted.
--
-- Atomically: an entry that is still pending for this consumer, by that delivery, passes to a consumer that counts as
-- having left, looks long forgotten to consumers of other kinds, and has the delivery count that it had before. The one
-- who hands it back may go on living: its lease does not protect the entry any more. Sending it twice changes nothing.
--
-- KEYS  stream, workers
-- ARGV  group, consumer, heir (the consumer that has left), idle_ms, then entry id, earlier deliveries for each entry
-- Returns how many were handed back
local stream, workers = KEYS[1], KEYS[2]
local group, consumer, heir, idle_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call = redis.call

-- include lib/refusal.lua
-- include lib/is_held.lua

local mine = {}
for i = 5, #ARGV, 2 do
  local held, trouble = is_held(stream, group, consumer, ARGV[i], tonumber(ARGV[i + 1]) + 1)
  if trouble and not string.find(trouble.err, 'NOGROUP', 1, true) then return trouble end
  if held then mine[#mine + 1] = i end
end
if #mine == 0 then return 0 end

-- XCLAIM comes first: it needs no memory, and once a script has written it is refused nothing for want of that.
local refused = refusal('XCLAIM', stream, group, consumer, 0, '0-0', 'JUSTID')
if refused then return refused end

call('ZADD', workers, 0, heir)
redis.pcall('PEXPIRE', workers, 604800000)  -- a week, as keep.lua has it: also if the list begins here
for _, i in ipairs(mine) do
  call('XCLAIM', stream, group, heir, 0, ARGV[i], 'IDLE', idle_ms, 'RETRYCOUNT', ARGV[i + 1], 'JUSTID')
end
return #mine
