"""Large jobs: neither the server nor the worker holds more of them at once than it has to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from pychasqui import Job, Queue, Worker
from pychasqui.codec import encode_data, encode_envelope, join_member
from tests.support.delayed import Delayed
from tests.support.waiting import eventually

KIB = 1024


@pytest.fixture
async def slowlog(witness: redis.asyncio.Redis) -> AsyncIterator[redis.asyncio.Redis]:
    """The witness, of a server that notes how long each command takes."""
    await witness.config_set("slowlog-log-slower-than", 0)
    await witness.config_set("slowlog-max-len", 10_000)
    yield witness
    await witness.config_set("slowlog-log-slower-than", 10_000)
    await witness.config_set("slowlog-max-len", 128)


async def longest_script_ms(slowlog: redis.asyncio.Redis) -> float:
    """How long the longest script since the last SLOWLOG RESET has held the server."""
    entries = await slowlog.slowlog_get(-1)
    return max((entry["duration"] for entry in entries if entry["command"].startswith(b"EVAL")), default=0) / 1000


class TestTheServer:
    async def test_many_large_delayed_jobs_that_are_due_at_once_do_not_hold_it_up(
        self, queue: Queue, delayed: Delayed, redis_url: str, slowlog: redis.asyncio.Redis
    ) -> None:
        """One call for all of them takes the better part of a second."""
        ran = []

        async def handler(job: Job) -> None:
            ran.append(job.id)

        for number in range(600):
            payload = encode_data("x" * 100 * KIB)
            await delayed.put(join_member("large", encode_envelope(f"{number:026d}", payload, 1, 0, None)))
        await slowlog.slowlog_reset()
        async with Worker(queue.name, handler, redis_url=redis_url):
            await eventually(lambda: len(ran) == 600, timeout=30)
        assert len(set(ran)) == 600
        assert await longest_script_ms(slowlog) < 150
