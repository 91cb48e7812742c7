-- Makes a process that may lead the leader for this long. PEXPIRE comes first: it needs no memory, and what follows a write
-- passes without memory. Else every process would lead on a full server.
local function take_lease(lease, holder, lease_ms)
  redis.pcall('PEXPIRE', lease, lease_ms)
  redis.pcall('SET', lease, holder, 'PX', lease_ms)
end
