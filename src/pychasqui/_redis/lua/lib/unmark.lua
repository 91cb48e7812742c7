-- Lets the next of a job's id in: the marker of the entry's job goes, unless that has a window of its own, or stands for
-- another job by now. Where official processes had to do with it, it may not know where the job is: not in the delayed
-- set.
local function unmark(prefix, job_id, id)
  local marker, index = prefix .. ':dlid:' .. job_id, prefix .. ':didx:' .. job_id
  local place = redis.pcall('GET', marker)
  if place == id or ((place == '1' or place == 'd') and redis.call('EXISTS', index) == 0) then
    redis.call('DEL', marker)
  end
end
