-- Publishes a message. It is a hint: a refusal changes nothing. Messages of a shard channel stay at the nodes of its slot.
local function publish(channel, message)
  if string.find(channel, '}:shard:', 1, true) then
    redis.pcall('SPUBLISH', channel, message)
  else
    redis.pcall('PUBLISH', channel, message)
  end
end
