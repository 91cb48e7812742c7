-- Returns the error if one of the commands of rebuild_group would be refused, nil if none.
local function server_refusal_of_rebuild()
  local claim = refusal('XCLAIM', stream, group, consumer, 0, '0-0')
  if string.find(claim.err, 'NOGROUP', 1, true) then claim = nil end
  return claim
    or refusal('PEXPIRE', reports, lease_ms)
    or refusal('PEXPIRE', workers, workers_kept_ms)
    or refusal('XGROUP', 'DESTROY', stream, group)
    or refusal('XRANGE', stream, '-', '-')
    or refusal('ZRANGEBYSCORE', workers, '(0', '(0')
    or refusal('ZADD', workers, 'XX', 'GT', '-inf', '')
end
