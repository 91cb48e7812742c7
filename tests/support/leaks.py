"""Finds the keys that a test leaves in Redis. Allowed are keys with a TTL, event streams and empty job streams."""

from __future__ import annotations

import redis

from tests.support.server import RedisServer


def leaked_keys(server: RedisServer) -> list[str]:
    """One line for each key that has no TTL and still holds something."""
    with server.client() as client:
        keys = sorted(client.scan_iter(count=1000))
        return [line for key in keys if (line := _leak(client, key))]


def _leak(client: redis.Redis, key: bytes) -> str:
    if client.pttl(key) >= 0 or key.endswith(b":events"):
        return ""
    kind = client.execute_command("TYPE", key).decode()
    if kind != "stream":
        return f"{key!r}: a {kind} without a TTL"
    length = client.xlen(key)
    pending = sum(group["pending"] for group in client.xinfo_groups(key))
    return f"{key!r}: a stream with {length} entries and {pending} pending" if length or pending else ""
