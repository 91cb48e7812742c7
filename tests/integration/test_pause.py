"""Pause and resume: workers read no more, finish their running jobs, and producers notice nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import pytest
import redis.asyncio

from pychasqui import Job, Queue, Worker
from tests.support.proxy import Proxy
from tests.support.waiting import eventually


@pytest.fixture
async def queue(queue: Queue) -> AsyncIterator[Queue]:
    yield queue
    await queue.obliterate()


class Starts:
    """A handler that keeps when its jobs began and ended."""

    def __init__(self, lasts_s: float = 0.0) -> None:
        self.began: list[float] = []
        self.ended = 0
        self._lasts_s = lasts_s

    async def __call__(self, job: Job) -> None:
        self.began.append(monotonic())
        await asyncio.sleep(self._lasts_s)
        self.ended += 1

    def since(self, at: float) -> int:
        return sum(began > at for began in self.began)


async def is_empty(queue: Queue) -> bool:
    counts = await queue.counts()
    return counts.waiting == counts.active == 0


async def test_an_idle_worker_takes_nothing_and_goes_on_when_resumed(
    queue: Queue, redis_url: str, queue_name: str
) -> None:
    handler = Starts()
    async with Worker(queue_name, handler, redis_url=redis_url):
        for _ in range(3):
            handler.began.clear()
            await queue.pause()
            paused_at = monotonic()
            assert await queue.is_paused()
            await asyncio.sleep(0.1)
            await queue.add_bulk({"name": "send"} for _ in range(20))
            await asyncio.sleep(0.1)
            assert handler.since(paused_at) == 0
            assert (await queue.counts()).waiting == 20
            await queue.resume()
            assert not await queue.is_paused()
            await eventually(lambda: len(handler.began) == 20, timeout=4)


@pytest.mark.parametrize(("lasts_s", "concurrency"), ((0.0, 100), (0.001, 10), (0.02, 20), (0.2, 5)))
async def test_a_busy_worker_starts_nothing_100_ms_later_and_finishes_what_runs(
    queue: Queue, redis_url: str, queue_name: str, lasts_s: float, concurrency: int
) -> None:
    handler = Starts(lasts_s)
    await queue.add_bulk({"name": "send"} for _ in range(20_000 if lasts_s < 0.01 else 1000))
    async with Worker(queue_name, handler, redis_url=redis_url, concurrency=concurrency, events_enabled=False):
        await eventually(lambda: len(handler.began) > concurrency)
        await queue.pause()
        paused_at = monotonic()
        await asyncio.sleep(0.3 + lasts_s)
        assert handler.since(paused_at + 0.1) == 0
        counts = await queue.counts()
        assert counts.waiting > 0
        await eventually(lambda: handler.ended == len(handler.began))


async def test_every_worker_gets_the_pause_also_one_that_starts_later(
    queue: Queue, redis_url: str, queue_name: str
) -> None:
    handler = Starts()
    async with Worker(queue_name, handler, redis_url=redis_url), Worker(queue_name, handler, redis_url=redis_url):
        await queue.pause()
        await asyncio.sleep(0.1)
        async with Worker(queue_name, handler, redis_url=redis_url):
            await queue.add_bulk({"name": "send"} for _ in range(10))
            await asyncio.sleep(0.2)
            assert handler.began == []
            await queue.resume()
            await eventually(lambda: len(handler.began) == 10, timeout=4)


async def test_entries_of_a_dead_worker_are_not_taken_over_during_a_pause(
    queue: Queue, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
) -> None:
    handler = Starts()
    await queue.add("send")
    stream = f"{{chasqui:{queue_name}}}:stream"
    await witness.xgroup_create(stream, "default", "0")
    await witness.xreadgroup("default", "dead", {stream: ">"})
    await queue.pause()
    async with Worker(queue_name, handler, redis_url=redis_url, claim_min_idle_ms=300, lease_ms=300):
        await asyncio.sleep(0.8)
        assert handler.began == []
        await queue.resume()
        await eventually(lambda: handler.began)
        await eventually(lambda: is_empty(queue))


async def test_producers_and_delays_go_on(queue: Queue, redis_url: str, queue_name: str) -> None:
    handler = Starts()
    async with Worker(queue_name, handler, redis_url=redis_url):
        await queue.pause()
        await asyncio.sleep(0.1)
        await queue.add("send", delay_ms=20)
        await queue.add("send")
        await eventually(lambda: _waits(queue, 2))
        assert handler.began == []
        await queue.resume()
        await eventually(lambda: len(handler.began) == 2, timeout=4)


async def test_a_paused_worker_can_be_closed_at_once(queue: Queue, redis_url: str, queue_name: str) -> None:
    async with Worker(queue_name, Starts(), redis_url=redis_url):
        await queue.pause()
        await asyncio.sleep(0.1)
        started = monotonic()
    assert monotonic() - started < 4


async def test_a_second_pause_or_resume_changes_nothing(
    queue: Queue, witness: redis.asyncio.Redis, queue_name: str
) -> None:
    for _ in range(2):
        await queue.pause()
        assert await queue.is_paused()
    assert await witness.exists(f"{{chasqui:{queue_name}}}:paused")  # the key that later official versions look at
    for _ in range(2):
        await queue.resume()
        assert not await queue.is_paused()


async def test_a_pause_key_set_by_hand_is_heeded_at_the_next_look(
    queue: Queue, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
) -> None:
    handler = Starts()
    async with Worker(queue_name, handler, redis_url=redis_url, lease_ms=300):
        await witness.set(f"{{chasqui:{queue_name}}}:paused", "1", ex=60)
        await asyncio.sleep(0.4)
        await queue.add("send")
        await asyncio.sleep(0.1)
        assert handler.began == []
        await witness.delete(f"{{chasqui:{queue_name}}}:paused")
        await eventually(lambda: handler.began)


async def test_a_lost_connection_does_not_end_a_pause(proxy: Proxy, queue: Queue, queue_name: str) -> None:
    handler = Starts()
    async with Worker(queue_name, handler, redis_url=proxy.url, lease_ms=600):
        await queue.pause()
        await asyncio.sleep(0.1)
        proxy.cut()
        await queue.add("send")
        await asyncio.sleep(0.4)
        assert handler.began == []
        await queue.resume()
        await eventually(lambda: handler.began)


@pytest.mark.parametrize("protocol", (2, 3))
async def test_a_pause_is_noticed_also_without_push_messages(
    queue: Queue, server: object, redis_url: str, queue_name: str, protocol: int
) -> None:
    handler = Starts()
    async with Worker(queue_name, handler, redis_url=f"{redis_url}?protocol={protocol}", lease_ms=300):
        await queue.pause()
        await asyncio.sleep(0.3)
        await queue.add("send")
        await asyncio.sleep(0.1)
        assert handler.began == []
        await queue.resume()
        await eventually(lambda: handler.began)


async def _waits(queue: Queue, count: int) -> bool:
    return (await queue.counts()).waiting == count
