-- Returns {key, score, spec, fired, retry, bytes of the spec} of a repeatable, nil if it has no spec. `bytes` is what HSTRLEN
-- answered: an error stands for a key that holds something else.
local function read_spec(spec_key, key, score, bytes, most_bytes)
  local is_readable = type(bytes) == 'number' and bytes <= most_bytes
  local fields = is_readable and redis.call('HMGET', spec_key, 'spec', 'fired', 'retry') or {''}
  local spec, fired, retry = fields[1], fields[2] or '0', fields[3] or ''
  if not spec then return nil end
  if #fired > 20 then fired = 'too long' end
  -- The override of another spec does not count. An override is small, too.
  local is_override = retry ~= '' and #retry < 10000 and string.sub(retry, 1, 40) == redis.sha1hex(spec)
  return {key, score, spec, fired, is_override and string.sub(retry, 41) or '', type(bytes) == 'number' and bytes or 0}
end
