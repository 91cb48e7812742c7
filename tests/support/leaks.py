"""Finds the keys that a test leaves in Redis. Allowed are keys with a TTL, event streams and empty job streams."""

from __future__ import annotations

from tests.support.server import RedisServer

# For each key that has no TTL: its name, its type, how many entries it has and how many are pending.
WITHOUT_TTL = """
    local found = {}
    for _, key in ipairs(redis.call('KEYS', '*')) do
      if redis.call('PTTL', key) < 0 then
        local kind, length, pending = redis.call('TYPE', key).ok, 0, 0
        if kind == 'stream' then
          length = redis.call('XLEN', key)
          for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do
            for i = 1, #group, 2 do
              if group[i] == 'pending' then pending = pending + group[i + 1] end
            end
          end
        end
        found[#found + 1] = {key, kind, length, pending}
      end
    end
    return found
"""


def leaked_keys(server: RedisServer) -> list[str]:
    """One line for each key that has no TTL and still holds something."""
    found = sorted(server.ask("EVAL", WITHOUT_TTL, "0"))
    return [line for key in found if (line := _leak(*key))]


def _leak(key: bytes, kind: bytes, length: int, pending: int) -> str:
    if key.endswith(b":events"):
        return ""
    if kind != b"stream":
        return f"{key!r}: a {kind.decode()} without a TTL"
    return f"{key!r}: a stream with {length} entries and {pending} pending" if length or pending else ""
