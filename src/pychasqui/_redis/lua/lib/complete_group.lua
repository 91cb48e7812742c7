local function renew_own_lease(now_ms)
  redis.call('ZADD', workers, now_ms + lease_ms, consumer)
  redis.call('PEXPIRE', workers, workers_kept_ms)
end

-- Stores how far the group is, for as long as the list of workers: the rest would be stranded without that.
local function go_on_later(start, last)
  redis.call('HSET', reports, 'start', start, 'last', last)
  redis.call('PEXPIRE', reports, workers_kept_ms)
end

-- Goes on with a group that exists. If the reports hold no ids, or are of another type, nothing is left to hand over.
local function complete_group(now_ms)
  local found = redis.pcall('HMGET', reports, 'start', 'last', 'of ' .. consumer)
  local start, last, report = found[1] or '', found[2] or '', found[3]
  local trouble = found.err and found or refusal('XRANGE', stream, start, last, 'COUNT', 1)
  local why = trouble and trouble.err or ''
  if string.find(why, 'WRONGTYPE', 1, true) or string.find(why, 'stream ID', 1, true) then
    redis.call('DEL', reports)
    return 1
  end
  if trouble then return trouble end
  -- Whatever could be refused must be refused before anything is written. PEXPIRE comes first: it needs no memory.
  trouble = refusal('PEXPIRE', workers, workers_kept_ms)
    or refusal('PEXPIRE', reports, workers_kept_ms)
    or refusal('HSET', reports, 'start', start)
    or refusal('ZADD', workers, 'XX', 'GT', '-inf', consumer)
    or refusal('XCLAIM', stream, group, consumer, 0, '0-0', 'JUSTID')
  if trouble then return trouble end
  local must_wait = false
  for _, report_of_other in ipairs(reports_of_living(now_ms)) do must_wait = must_wait or report_of_other end
  renew_own_lease(now_ms)
  if report then return 2 end
  if must_wait then return 0 end
  local next_start = hand_over(start, last)
  if not next_start then
    redis.pcall('DEL', reports)
    return 1
  end
  go_on_later(next_start, last)
  return 0
end
