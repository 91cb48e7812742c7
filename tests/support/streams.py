"""A queue's stream as an independent client sees it: decoded with msgpack-python, not with the code under test."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgpack  # type: ignore[import-untyped]
import redis.asyncio


@dataclass(frozen=True)
class Stored:
    """One entry."""

    job_id: str
    name: str | None
    data: Any
    created_at_ms: int
    attempt: int
    retry: list[Any] | None


class Stream:
    def __init__(self, client: redis.asyncio.Redis, queue_name: str) -> None:
        self.key = f"{{chasqui:{queue_name}}}:stream"
        self._prefix = f"{{chasqui:{queue_name}}}:"
        self._client: Any = client  # redis-py types replies as everything they could be under any setting

    async def entries(self) -> list[Stored]:
        return [_read(fields) for _, fields in await self._client.xrange(self.key)]

    async def ids(self) -> list[str]:
        return [entry.job_id for entry in await self.entries()]

    async def length(self) -> int:
        return int(await self._client.xlen(self.key))

    async def pending(self, group: str = "default") -> int:
        return int((await self._client.xpending(self.key, group))["pending"])

    async def is_settled(self, group: str = "default") -> bool:
        """Nothing waits and nothing is held."""
        return await self.length() == 0 and await self.pending(group) == 0

    async def consumers(self, group: str = "default") -> list[str]:
        return sorted(each["name"].decode() for each in await self._client.xinfo_consumers(self.key, group))

    async def keys(self) -> list[str]:
        """Every key of the queue, without its common beginning."""
        found = [key.decode() async for key in self._client.scan_iter(count=1000)]
        return sorted(key.removeprefix(self._prefix) for key in found if key.startswith(self._prefix))

    async def found_by_id(self) -> list[str]:
        """The keys that find jobs by their ids, and keep others of their ids out."""
        return [key for key in await self.keys() if key.startswith(("unique:", "dlid:", "didx:"))]

    async def ledgers(self) -> list[str]:
        return [f"{self._prefix}{key}" for key in await self.keys() if key.startswith("ledger:")]

    async def clear(self) -> None:
        await self._client.delete(self.key)


def twice(ids: list[str]) -> list[str]:
    """The ids that occur more than once."""
    return [job_id for job_id, count in Counter(ids).items() if count > 1]


def _read(fields: dict[bytes, bytes]) -> Stored:
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(fields[b"d"])
    job_id, payload, created_at_ms, attempt, *retry = unpacker.unpack()  # bytes may follow
    name = fields.get(b"n")
    data = msgpack.unpackb(payload, strict_map_key=False)
    return Stored(
        job_id, name.decode() if name is not None else None, data, created_at_ms, attempt, retry[0] if retry else None
    )
