"""Delayed jobs as an independent client sees them."""

from __future__ import annotations

import redis.asyncio


class Delayed:
    """The delayed set as redis-py sees it."""

    def __init__(self, witness: redis.asyncio.Redis, queue_name: str) -> None:
        self._witness = witness
        self.key = f"{{chasqui:{queue_name}}}:delayed"

    async def count(self) -> int:
        return int(await self._witness.zcard(self.key))

    async def scores(self) -> list[float]:
        return [score for _, score in await self._witness.zrange(self.key, 0, -1, withscores=True)]

    async def put(self, member: bytes, score: float = 1) -> None:
        await self._witness.zadd(self.key, {member: score})

    async def make_due(self) -> None:
        for member in await self._witness.zrange(self.key, 0, -1):
            await self._witness.zadd(self.key, {member: 1}, xx=True)
