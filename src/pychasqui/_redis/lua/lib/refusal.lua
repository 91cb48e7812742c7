-- Returns the error that a command is refused with, nil if it is not. The words are such that the command changes
-- nothing: a script tries with them, before its first write, what it must not be refused later.
local function refusal(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return reply end
  return nil
end
