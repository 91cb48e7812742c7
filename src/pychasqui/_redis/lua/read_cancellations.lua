-- Returns the notes about cancelled jobs, without those whose jobs have left the stream: these it removes.
--
-- Atomically: a note is removed only if its entry is not in the stream, or if every entry that it is about comes before the
-- first of the stream. No note outlives its job for long, and none is lost. Sent twice, it returns the same. A note that
-- cannot be removed is returned no more than others. A call looks for entries until it has read `max_bytes` of them.
--
-- KEYS  stream, notes (of cancel)
-- ARGV  max_bytes (the last entry may go beyond it), most_notes
-- Returns field, value... of the notes
local stream, notes = KEYS[1], KEYS[2]
local bytes_left, most_notes = tonumber(ARGV[1]), ARGV[2]
local call = redis.call

-- include lib/is_after.lua

local first = call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
local first_ms = first and tonumber(string.match(first[1], '^%d+'))

-- Hot: is_after takes 1 us, and most notes show by their time that they are old or not.
local function is_passed(last)
  local last_ms = tonumber(string.match(last, '^%d+'))
  return last_ms < first_ms or (last_ms == first_ms and is_after(first[1], last))
end

-- Anybody may have written a note: what is no id of an entry is gone, too.
local function is_gone(entry_id)
  if bytes_left <= 0 then return false end
  local entry = redis.pcall('XRANGE', stream, entry_id, entry_id)[1]
  for _, word in ipairs(entry and entry[2] or {}) do bytes_left = bytes_left - #word end
  return not entry
end

-- All of them, unless anybody has written more than cancel does.
local fields, kept, moot = call('HRANDFIELD', notes, most_notes, 'WITHVALUES'), {}, {}
for i = 1, #fields, 2 do
  local is_exact = fields[i + 1] == '1'
  local last = string.match(is_exact and fields[i] or fields[i + 1], '^%d+-%d+$')
  if not (last and first) or is_passed(last) or (is_exact and is_gone(last)) then
    moot[#moot + 1] = fields[i]
  else
    kept[#kept + 1] = fields[i]
    kept[#kept + 1] = fields[i + 1]
  end
end
for start = 1, #moot, 1000 do
  redis.pcall('HDEL', notes, unpack(moot, start, math.min(start + 999, #moot)))
end
return kept
