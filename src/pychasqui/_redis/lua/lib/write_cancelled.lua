-- Writes the event of a job that was cancelled before it ran, or between two runs, if the queue has events. Best effort.
local function write_cancelled(job_id, name, now_ms)
  local words = {'e', 'cancelled', 'id', job_id, 'ts', now_ms}
  if name ~= '' then words[7], words[8] = 'n', name end
  redis.pcall('XADD', events, 'NOMKSTREAM', 'MAXLEN', '~', events_max_len, '*', unpack(words))
end
