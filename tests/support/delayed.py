"""Delayed jobs as an independent client sees them, and when they ran."""

from __future__ import annotations

import time
from typing import Any

import redis.asyncio

from pychasqui import Job


class Runs:
    """A handler that records its jobs and their arrival times."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.at_ms: dict[Any, float] = {}

    async def __call__(self, job: Job) -> None:
        self.at_ms[job.data] = time.time() * 1000
        self.jobs.append(job)

    def has_run(self, data: Any) -> bool:
        return data in self.at_ms

    @property
    def data(self) -> list[Any]:
        return [job.data for job in self.jobs]


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
