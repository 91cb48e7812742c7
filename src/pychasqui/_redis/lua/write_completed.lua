-- Writes the events of jobs that succeeded: that each was active, unless that was written before, and that it completed.
--
-- Events are best effort: nothing waits for them. If the first is refused, the call fails; those that are refused behind
-- it are missing. Sent twice, it writes them twice. It is sent behind the ack that stores the results, before that is
-- answered, so it looks itself whether each result is there, and says why the server has refused one that is not.
--
-- KEYS  events
-- ARGV  max_len, prefix of the results' keys (empty: results are not stored), then for each job: id, name (may be empty),
--       attempt, when it started in ms (empty: that was written before), when it ended in ms, duration_us
-- Touches the keys of the results, as ack_with_result does
-- Returns how many jobs there were
local events = KEYS[1]
local max_len, results = ARGV[1], ARGV[2]
local write = redis.call

local whys = {}  -- by a job's id: why its result is not stored
if results ~= '' then
  local keys = {}
  for i = 3, #ARGV, 6 do keys[#keys + 1] = results .. ARGV[i] end
  if #keys > 0 and redis.pcall('EXISTS', unpack(keys)) ~= #keys then
    for i = 3, #ARGV, 6 do
      local key = results .. ARGV[i]
      if redis.pcall('EXISTS', key) ~= 1 then  -- refused, or its time is over
        local why = redis.pcall('SET', key, '', 'NX', 'XX').err  -- writes never: NX contradicts XX
        if not string.find(why, 'syntax error', 1, true) then whys[ARGV[i]] = why end
      end
    end
  end
end
local stored = results == '' and '0' or '1'

for i = 3, #ARGV, 6 do
  local id, name, attempt, started, ended, duration =
    ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  if name == '' then
    if started ~= '' then
      write('XADD', events, '*', 'e', 'active', 'id', id, 'ts', started, 'attempt', attempt)
      write = redis.pcall
    end
  elseif started ~= '' then
    write('XADD', events, '*', 'e', 'active', 'id', id, 'ts', started, 'n', name, 'attempt', attempt)
    write = redis.pcall
  end
  if whys[id] then
    local words = {'e', 'completed', 'id', id, 'ts', ended}
    if name ~= '' then words[7], words[8] = 'n', name end
    local rest = {'attempt', attempt, 'duration_us', duration, 'stored', '0', 'why', whys[id]}
    for _, word in ipairs(rest) do words[#words + 1] = word end
    write('XADD', events, '*', unpack(words))
  elseif name == '' then
    write(
      'XADD', events, '*',
      'e', 'completed', 'id', id, 'ts', ended, 'attempt', attempt, 'duration_us', duration, 'stored', stored
    )
  else
    write(
      'XADD', events, '*',
      'e', 'completed', 'id', id, 'ts', ended, 'n', name, 'attempt', attempt, 'duration_us', duration, 'stored', stored
    )
  end
  write = redis.pcall
end
redis.pcall('XTRIM', events, 'MAXLEN', '~', max_len)
return (#ARGV - 2) / 6
