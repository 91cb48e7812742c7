-- Returns the words of a dead letter, from those of ARGV. If the first field is empty, the entry was too large to be sent
-- to the worker and back: its payload and its name are taken from the entry.
local function dead_letter(stream, id, first, last)
  local letter = {unpack(ARGV, first, last)}
  if letter[1] ~= '' then return letter end
  local entry = redis.call('XRANGE', stream, id, id)[1]
  local fields, own = entry and entry[2] or {}, {}
  for i = 1, #fields, 2 do own[fields[i]] = fields[i + 1] end
  letter[1], letter[2] = 'd', own['d'] or ''
  if own['n'] and own['n'] ~= '' then letter[#letter + 1], letter[#letter + 2] = 'n', own['n'] end
  return letter
end
