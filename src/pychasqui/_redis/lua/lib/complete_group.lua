local function renew_own_lease(now_ms)
  redis.call('ZADD', workers, now_ms + lease_ms, consumer)
  redis.call('PEXPIRE', workers, workers_kept_ms)
end

-- Hands over as many entries as one call may. Returns 1 if the group is complete, else 0: the rest is on record for as long
-- as the list of workers, because it would be stranded without that.
local function finish_group(start, last)
  local next_start = hand_over(start, last)
  if not next_start then
    redis.pcall('DEL', reports)
    return 1
  end
  redis.call('HSET', reports, 'start', next_start, 'last', last)
  redis.call('PEXPIRE', reports, workers_kept_ms)
  return 0
end

-- Goes on with a group that exists. If the reports hold no ids, or are of another type, nothing is left to hand over.
local function complete_group()
  local start = redis.pcall('HGET', reports, 'start') or ''
  local last = redis.pcall('HGET', reports, 'last') or ''
  local trouble = start.err and start or refusal('XRANGE', stream, start, last, 'COUNT', 1)
  local why = trouble and trouble.err or ''
  if string.find(why, 'WRONGTYPE', 1, true) or string.find(why, 'stream ID', 1, true) then
    redis.call('DEL', reports)
    return 1
  end
  if trouble then return trouble end
  renew_own_lease(server_time_ms(math.floor))
  return finish_group(start, last)
end
