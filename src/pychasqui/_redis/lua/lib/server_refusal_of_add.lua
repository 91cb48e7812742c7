-- Returns the error if one of the commands of add_with_options would be refused, nil if none. For a single job, what is only
-- read is read before anything is written and need not be tried. A stream without ids left cannot be found out before:
-- see add_to_stream.
local function server_refusal_of_add()
  local has_unique, may_replace, keys = false, false, {}
  append_job_keys(keys, '')  -- no id is empty: whatever is tried with these keys changes nothing
  local no_job, no_official, no_index = unpack(keys)
  for i = first_job, #ARGV, words_a_job do
    local only = ARGV[i + 4]
    has_unique = has_unique or only ~= ''
    may_replace = may_replace or only == 'replace' or only == 'postpone'
    if only ~= '' then append_job_keys(keys, ARGV[i + 2]) else keys[#keys + 1] = index_key(ARGV[i + 2]) end
  end
  local refused = touch(keys)
    or refusal('XLEN', stream)
    or refusal('SET', no_job, '', 'XX')
    or refusal('SET', no_official, '', 'XX')
    or refusal('SET', no_index, '', 'XX')
    or refusal('ZADD', delayed, 'XX', 'GT', '-inf', 'none')
  if may_replace then refused = refused or refusal('XDEL', stream, '0-0') or refusal('ZREM', delayed, '') end
  local is_alone = #ARGV < first_job + words_a_job
  if is_alone or refused then return refused end
  -- Tried, it would count as an error each time; Redis 6.2 cannot be asked.
  if redis.acl_check_cmd and not redis.acl_check_cmd('XADD', stream, '*', 'd', '') then
    return redis.error_reply('NOPERM this user has no permissions to run XADD on ' .. stream)
  end
  if may_replace and redis.call('EXISTS', stream) == 1 then refused = refusal('XINFO', 'GROUPS', stream) end
  if not has_unique then return refused end
  return refused
    or refusal('MGET', no_job)
    or refusal('PTTL', no_job)
    or refusal('ZSCORE', delayed, '')
    or refusal('XRANGE', stream, '-', '-')
end
