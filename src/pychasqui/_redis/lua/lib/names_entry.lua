-- Returns whether a uniqueness key names an entry that is in the stream: then it belongs to the job of that entry, and not to
-- a delayed one of the same id. One beyond 1 MiB of such entries counts as there: a call does not read more.
local entry_bytes_left = 2 ^ 20
local function names_entry(location)
  local entry_id = string.match(location or '', '^w?(%d+-%d+)$')
  if not entry_id or entry_bytes_left <= 0 then return entry_id ~= nil end
  local entry = redis.pcall('XRANGE', stream, entry_id, entry_id)[1]
  for _, word in ipairs(entry and entry[2] or {}) do entry_bytes_left = entry_bytes_left - #word end
  return entry ~= nil
end
