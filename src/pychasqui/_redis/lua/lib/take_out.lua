-- Removes a job from the delayed set, with its keys or, if it is to run now, into the stream. Returns the error if the stream
-- refuses it. The uniqueness key of another job of the same id stays as it is.
local function take_out(job_id, member, rank, runs_now)
  local location, entry_id = redis.pcall('MGET', unique_key(job_id))[1], nil
  if runs_now then
    local name, envelope = split_member(member)
    entry_id = add_entry(stream, name, envelope, location and hides_its_origin(job_id))
    if type(entry_id) == 'table' then return entry_id end
  end
  redis.call('ZREMRANGEBYRANK', delayed, rank, rank)
  redis.pcall('DEL', index_key(job_id))
  if names_entry(location) then return nil end
  if not runs_now then
    redis.pcall('DEL', unique_key(job_id), official_key(job_id))
  elseif location then
    point_at_entry(unique_key(job_id), location, entry_id)
  end
  return nil
end
