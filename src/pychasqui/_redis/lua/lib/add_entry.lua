-- Adds a job to the stream. Returns the new entry's id, or the error. An entry with the field `u` is of a job that may
-- have a uniqueness key, which must be removed when the job ends.
local pcall = redis.pcall  -- hot: 0.05 us an entry less than a look-up in redis
local function add_entry(stream, name, envelope, may_be_unique)
  if may_be_unique and name == '' then return pcall('XADD', stream, '*', 'd', envelope, 'u', '1') end
  if may_be_unique then return pcall('XADD', stream, '*', 'd', envelope, 'n', name, 'u', '1') end
  if name == '' then return pcall('XADD', stream, '*', 'd', envelope) end
  return pcall('XADD', stream, '*', 'd', envelope, 'n', name)
end

-- Returns whether an entry must have the field `u` if its job has a uniqueness key. A shorter id was given by a user,
-- which shows by its length; one of 26 characters, as ours have, does not. In UTF-8 it has 26 bytes or more.
local function hides_its_origin(job_id) return #job_id >= 26 end
