-- The keys of one job, named by its id. `prefix` is that of the queue's keys.
--   :unique:<id>  the uniqueness key: where the only job of this id is
--   :dlid:<id>    what official producers check before they delay a job of this id
--   :didx:<id>    the job's member of the delayed set
local function unique_key(job_id) return prefix .. ':unique:' .. job_id end
local function official_key(job_id) return prefix .. ':dlid:' .. job_id end
local function index_key(job_id) return prefix .. ':didx:' .. job_id end

-- Appends all three to a list.
local function append_job_keys(keys, job_id)
  keys[#keys + 1] = unique_key(job_id)
  keys[#keys + 1] = official_key(job_id)
  keys[#keys + 1] = index_key(job_id)
end
