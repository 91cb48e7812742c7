-- Takes over one pending entry, counted as one more delivery. Returns {id, fields or size, earlier deliveries} and how many
-- bytes that takes; nil and 0 if the entry was deleted while pending, which drops it.
local function claim_entry(stream, group, consumer, pending, max_entry_bytes)
  local id, deliveries = pending[1], pending[4]
  local claimed = redis.call('XCLAIM', stream, group, consumer, 0, id)
  if #claimed == 1 and claimed[1] and claimed[1][2] then
    local fields, bytes = bounded_fields(claimed[1][2], max_entry_bytes)
    return {id, fields, deliveries}, bytes
  end
  redis.pcall('XACK', stream, group, id)  -- if that is refused, list_pending finds it
  return nil, 0
end
