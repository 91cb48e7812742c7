-- Removes the stream with all its entries, and recreates those of its groups that consumers are in.
--
-- Atomically: no consumer ever finds such a group missing. Official consumers do not recreate theirs, and would read nothing
-- any more; a read that waits goes on waiting. What was pending is forgotten. The stream goes on behind its last id: one
-- that begins again could give a new job the id of an old one, whose ack would remove the new one. Sent twice, it changes
-- nothing.
--
-- KEYS  stream
-- Returns 1 if there was a stream, else 0
local stream = KEYS[1]
local most_consumers = 1000  -- of a group; with more of them, most have ended, and those that read come back by themselves
local call = redis.call

-- include lib/refusal.lua

if call('EXISTS', stream) == 0 then return 0 end
local kept, last = {}, nil  -- kept: each group with its consumers
if call('TYPE', stream).ok == 'stream' then
  for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do
    local about = {}
    for i = 1, #group, 2 do about[group[i]] = group[i + 1] end
    if about['consumers'] > 0 then
      local is_small = about['consumers'] <= most_consumers
      kept[#kept + 1] = {name = about['name'], consumers = is_small and call('XINFO', 'CONSUMERS', stream, about['name']) or {}}
    end
  end
  local about = call('XINFO', 'STREAM', stream)
  for i = 1, #about, 2 do
    if about[i] == 'last-generated-id' then last = about[i + 1] end
  end
end

-- Removes nothing and needs no memory: what follows a write passes without memory. A full server can be emptied.
if last then redis.pcall('XDEL', stream, '0-0') end

-- Whatever could be refused must be refused before the first write: creating a group that exists fails with BUSYGROUP.
for _, group in ipairs(kept) do
  local refused = refusal('XGROUP', 'CREATE', stream, group.name, '0')
  if refused and not string.find(refused.err, 'BUSYGROUP', 1, true) then return refused end
end
local refused = #kept > 0 and refusal('XSETID', stream, last)
if refused then return refused end

call('UNLINK', stream)
for _, group in ipairs(kept) do
  call('XGROUP', 'CREATE', stream, group.name, '0', 'MKSTREAM')
  for _, about in ipairs(group.consumers) do
    for i = 1, #about, 2 do
      -- Best effort: a consumer that reads comes back by itself.
      if about[i] == 'name' then redis.pcall('XGROUP', 'CREATECONSUMER', stream, group.name, about[i + 1]) end
    end
  end
end
-- A stream without ids left begins again: it would take nothing any more.
if #kept > 0 and not string.find(last, '^18446744073709551615%-') then call('XSETID', stream, last) end
return 1
