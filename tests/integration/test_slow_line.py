"""Lines that are slow and not dead: few bytes a second, long round trips."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pychasqui import AddUnknown, Job, Queue, RedisTrouble, Worker
from pychasqui._core import limits
from tests.support.proxy import Proxy
from tests.support.waiting import eventually


async def test_a_line_that_dies_after_the_timeout_of_an_add_does_not_hang_the_next_call(
    proxy: Proxy, queue: Queue
) -> None:
    """Its bytes moved at the timeout, so it was kept. Then more of them wait than others may write behind."""
    async with Queue(queue.name, redis_url=proxy.url, timeout_s=1) as slow:
        await slow.add_bulk([{"name": "send", "data": "x" * 100_000}])
        await slow.counts()
        proxy.limit(200_000)
        with pytest.raises(AddUnknown):
            await slow.add_bulk({"name": "send", "data": "x" * 100_000} for _ in range(40))
        proxy.freeze()
        async with asyncio.timeout(20):
            with pytest.raises(RedisTrouble):
                await slow.counts()
        proxy.cut()
    await queue.purge("waiting")


async def test_a_batch_that_takes_longer_than_a_timeout_to_arrive_is_run(
    proxy: Proxy, queue: Queue, make_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WORK_TIMEOUT_S", 1.5)
    await queue.add_bulk([{"name": "run", "data": "x" * 10_000} for _ in range(60)])
    runs: list[str] = []

    async def handler(job: Job) -> None:
        runs.append(job.id)

    proxy.limit(150_000)
    async with make_worker(handler, redis_url=proxy.url, read_block_ms=100, events_enabled=False):
        await eventually(lambda: len(runs) == 60, timeout=20)
        assert proxy.accepted == 3  # none was made again
    assert len(set(runs)) == 60
