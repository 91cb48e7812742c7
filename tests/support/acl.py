"""What the log of a server says about users that were refused something."""

from __future__ import annotations

from typing import Any

from pychasqui._redis.dialect import parse_version


async def refusals(client: Any) -> list[dict[str, Any]]:
    """Without the first command to the registry of queues on Redis 6.2, where a script cannot ask before it tries."""
    entries: list[dict[str, Any]] = await client.acl_log()
    if parse_version((await client.info("server"))["redis_version"]) >= (7, 0):
        return entries
    return [each for each in entries if each["context"] != "lua" or each["object"] not in ("zcard", "chasqui:queues")]
