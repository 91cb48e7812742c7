-- Returns the error if something of what an add on terms does would be refused, nil if not. Of a single job whatever is
-- only read is read before anything is written, and need not be tried. A stream whose ids are used up cannot be found
-- out before: see add_to_stream.
local function refusal_to_add()
  local has_unique, may_replace = false, false
  for i = 12, #ARGV, 6 do
    has_unique = has_unique or ARGV[i] ~= ''
    may_replace = may_replace or ARGV[i] == 'replace' or ARGV[i] == 'postpone'
  end
  local refused = refusal('XLEN', stream)
    or refusal('SET', prefix .. ':unique:', '', 'XX')
    or refusal('ZADD', delayed, 'XX', 'GT', '-inf', 'none')
  if may_replace then refused = refused or refusal('XDEL', stream, '0-0') or refusal('ZREM', delayed, '') end
  local is_alone = #ARGV <= 13
  if is_alone or refused then return refused end
  -- Tried, it would count as an error each time; Redis 6.2 cannot be asked.
  if redis.acl_check_cmd and not redis.acl_check_cmd('XADD', stream, '*', 'd', '') then
    return redis.error_reply('NOPERM this user has no permissions to run XADD on ' .. stream)
  end
  if may_replace and redis.call('EXISTS', stream) == 1 then refused = refusal('XINFO', 'GROUPS', stream) end
  if not has_unique then return refused end
  return refused
    or refusal('MGET', prefix .. ':unique:')
    or refusal('PTTL', prefix .. ':unique:')
    or refusal('ZSCORE', delayed, '')
    or refusal('XRANGE', stream, '-', '-')
end
