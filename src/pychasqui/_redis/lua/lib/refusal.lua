-- Returns the error that a command is refused with, nil if it is not refused. Scripts call it before their first write, with
-- arguments that change nothing, for every command that must not be refused later.
local function refusal(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return reply end
  return nil
end
