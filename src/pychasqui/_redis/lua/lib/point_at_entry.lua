-- Makes the uniqueness key of a delayed job that has joined the stream name its entry. A window stays one.
local function point_at_entry(unique, location, entry_id)
  redis.pcall('SET', unique, (string.sub(location, 1, 1) == 'w' and 'w' or '') .. entry_id, 'KEEPTTL')
end
