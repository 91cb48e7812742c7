"""Reads the stored bytes without any code of ours, by redis-py and msgpack."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import msgpack  # type: ignore[import-untyped]
import redis
import redis.asyncio

from tests.support.leaks import leaked_keys
from tests.support.server import RedisServer
from tests.support.waiting import eventually

CREATED_AT = 2  # its place in the envelope


class Wire:
    """The keys of one queue, as the specification of the official engine spells them."""

    def __init__(self, witness: redis.asyncio.Redis, queue_name: str) -> None:
        self._witness = witness
        self.stream = f"{{chasqui:{queue_name}}}:stream"
        self.delayed = f"{{chasqui:{queue_name}}}:delayed"
        self.dead = f"{{chasqui:{queue_name}}}:dlq"
        self.promoter_lock = f"{{chasqui:{queue_name}}}:promoter:lock"

    async def entries(self) -> list[dict[bytes, bytes]]:
        return [fields for _, fields in await self._witness.xrange(self.stream)]

    async def put(self, **fields: bytes) -> None:
        """Adds an entry of any fields."""
        await self._witness.xadd(self.stream, fields)

    async def waiting(self) -> int:
        return await self._witness.xlen(self.stream)

    async def pending(self) -> dict[bytes, bytes]:
        """The ids of entries that are held, and by whom."""
        try:
            held = await self._witness.xpending_range(self.stream, "default", "-", "+", 10_000)
        except redis.ResponseError:  # there is no group yet
            return {}
        return {one["message_id"]: one["consumer"] for one in held}

    async def members(self) -> list[bytes]:
        """The delayed jobs, soonest first."""
        return await self._witness.zrange(self.delayed, 0, -1)

    async def due_in_ms(self) -> dict[str, float]:
        """How long each delayed job still has to wait, by its id."""
        members = await self._witness.zrange(self.delayed, 0, -1, withscores=True)
        return {job_id(split(member)[1]): score - time.time() * 1000 for member, score in members}

    async def make_due(self) -> None:
        """Makes every delayed job due now."""
        for member in await self.members():
            await self._witness.zadd(self.delayed, {member: 1}, xx=True)

    async def letters(self) -> list[dict[bytes, bytes]]:
        """The dead letters, oldest first."""
        return [fields for _, fields in await self._witness.xrange(self.dead)]

    async def clear(self) -> None:
        """Removes the stored jobs, which no worker will run."""
        await self._witness.delete(self.delayed, self.dead)
        if await self._witness.exists(self.stream):
            await self._witness.xtrim(self.stream, maxlen=0, approximate=False)


async def nothing_left(server: RedisServer) -> None:
    """Nothing waits, is pending, delayed or dead; what has ended may still be on its way to be acked."""
    with suppress(AssertionError):
        await eventually(lambda: not leaked_keys(server))
    leaked = leaked_keys(server)
    assert not leaked, "the test left keys behind:\n" + "\n".join(leaked)


def split(member: bytes) -> tuple[bytes, bytes]:
    """Name and envelope of a delayed job."""
    end = 4 + int.from_bytes(member[:4], "little")
    return member[4:end], member[end:]


def job_id(envelope: bytes) -> str:
    return str(unpack(envelope)[0])


def unpack(envelope: bytes) -> list[Any]:
    fields: list[Any] = msgpack.unpackb(envelope)
    return fields


def pack(*fields: Any) -> bytes:
    packed: bytes = msgpack.packb(fields)
    return packed


def timeless(stored: bytes) -> bytes:
    """An envelope, or bytes that end with one, with a zero in the place of the job's creation time."""
    envelope = stored if stored[0] in (0x94, 0x95) else split(stored)[1]
    created_at = b"\xcf" + int(unpack(envelope)[CREATED_AT]).to_bytes(8, "big")
    assert stored.count(created_at) == 1
    return stored.replace(created_at, b"\xcf" + bytes(8))


def nameless(envelope: bytes) -> bytes:
    """With dots in the place of an id of its own making, which is 26 characters long."""
    made_up = b"\xba" + job_id(envelope).encode()
    assert len(made_up) == 27
    assert envelope.count(made_up) == 1
    return envelope.replace(made_up, b"\xba" + b"." * 26)
