-- Writes the events of jobs that succeeded: that each was active, unless that was written before, and that it completed.
--
-- Events are best effort: nothing waits for them. If the first is refused, the call fails; those that are refused behind
-- it are missing. Sent twice, it writes them twice.
--
-- KEYS  events
-- ARGV  max_len, stored (1: results are stored), then for each job: id, name (may be empty), attempt, when it started in ms
--       (empty: that was written before), when it ended in ms, duration_us
-- Returns how many jobs there were
local events = KEYS[1]
local max_len, stored = ARGV[1], ARGV[2]
local write = redis.call

for i = 3, #ARGV, 6 do
  local id, name, attempt, started, ended, duration =
    ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  if name == '' then
    if started ~= '' then
      write('XADD', events, '*', 'e', 'active', 'id', id, 'ts', started, 'attempt', attempt)
      write = redis.pcall
    end
    write(
      'XADD', events, '*',
      'e', 'completed', 'id', id, 'ts', ended, 'attempt', attempt, 'duration_us', duration, 'stored', stored
    )
  else
    if started ~= '' then
      write('XADD', events, '*', 'e', 'active', 'id', id, 'ts', started, 'n', name, 'attempt', attempt)
      write = redis.pcall
    end
    write(
      'XADD', events, '*',
      'e', 'completed', 'id', id, 'ts', ended, 'n', name, 'attempt', attempt, 'duration_us', duration, 'stored', stored
    )
  end
  write = redis.pcall
end
redis.pcall('XTRIM', events, 'MAXLEN', '~', max_len)
return (#ARGV - 2) / 6
