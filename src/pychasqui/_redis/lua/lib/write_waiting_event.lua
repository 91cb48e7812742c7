-- Writes the event of a job that has joined the stream.
local function write_waiting_event(name, job_id)
  local words = {'e', 'waiting', 'id', job_id, 'ts', now_ms}
  if name ~= '' then words[7], words[8] = 'n', name end
  redis.pcall('XADD', events, 'MAXLEN', '~', events_max_len, '*', unpack(words))
end
