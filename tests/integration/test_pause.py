"""Pause and resume: workers read no more, finish their running jobs, and producers notice nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import pytest
import redis.asyncio

from pychasqui import Job, Queue, Worker
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.waiting import eventually, first_below
from tests.support.worker_parts import heeds_pause


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


async def is_empty(queue: Queue) -> bool:
    counts = await queue.counts()
    return counts.waiting == counts.active == 0


async def test_an_idle_worker_takes_nothing_and_goes_on_when_resumed(
    queue: Queue, redis_url: str, queue_name: str
) -> None:
    handler = Starts()
    async with Worker(queue_name, handler, redis_url=redis_url) as worker:
        for _ in range(3):
            handler.began.clear()
            await queue.pause()
            assert await queue.is_paused()
            await eventually(lambda: heeds_pause(worker))
            await queue.add_bulk({"name": "send"} for _ in range(20))
            await asyncio.sleep(0.1)
            assert handler.began == []
            assert (await queue.counts()).waiting == 20
            await queue.resume()
            assert not await queue.is_paused()
            await eventually(lambda: len(handler.began) == 20)


async def test_a_pause_holds_100_ms_later_also_right_after_a_resume(
    queue: Queue, redis_url: str, queue_name: str
) -> None:
    async with Worker(queue_name, Starts(), redis_url=redis_url) as worker:

        async def heeded() -> float:
            await queue.resume()
            await eventually(lambda: not heeds_pause(worker), every=0.001)
            await queue.pause()
            paused_at = monotonic()
            await eventually(lambda: heeds_pause(worker), every=0.001)
            return monotonic() - paused_at

        await first_below(0.09, heeded)


@pytest.mark.parametrize(("lasts_s", "concurrency"), ((0.0, 100), (0.001, 10), (0.02, 20), (0.2, 5)))
async def test_a_busy_worker_starts_nothing_100_ms_later_and_finishes_what_runs(
    queue: Queue, redis_url: str, queue_name: str, lasts_s: float, concurrency: int
) -> None:
    handler = Starts(lasts_s)
    async with Worker(
        queue_name, handler, redis_url=redis_url, concurrency=concurrency, events_enabled=False
    ) as worker:

        async def last_start() -> float:
            """How long after the pause the last job starts."""
            await queue.add_bulk({"name": "send"} for _ in range(20_000 if lasts_s < 0.01 else 1000))
            await queue.resume()
            begun = len(handler.began)
            await eventually(lambda: len(handler.began) > begun + concurrency)
            await queue.pause()
            paused_at = monotonic()
            await eventually(lambda: heeds_pause(worker))
            begun = len(handler.began)
            await eventually(lambda: handler.ended == begun)
            await asyncio.sleep(0.1)
            assert len(handler.began) == begun
            assert (await queue.counts()).waiting > 0
            return max(handler.began) - paused_at

        await first_below(0.1, last_start)


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
    async with Worker(queue_name, handler, redis_url=redis_url) as worker:
        await queue.pause()
        await eventually(lambda: heeds_pause(worker))
        await queue.add("send", delay_ms=20)
        await queue.add("send")
        await eventually(lambda: _waits(queue, 2))
        assert handler.began == []
        await queue.resume()
        await eventually(lambda: len(handler.began) == 2)


async def test_a_paused_worker_can_be_closed_at_once(queue: Queue, redis_url: str, queue_name: str) -> None:
    async with Worker(queue_name, Starts(), redis_url=redis_url, read_block_ms=60_000) as worker:
        await queue.pause()
        await eventually(lambda: heeds_pause(worker))
        started = monotonic()
    assert monotonic() - started < 20  # sooner than by the end of a read or of the pause


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
    async with Worker(queue_name, handler, redis_url=redis_url, lease_ms=300) as worker:
        await witness.set(f"{{chasqui:{queue_name}}}:paused", "1", ex=60)
        await eventually(lambda: heeds_pause(worker))
        await queue.add("send")
        await asyncio.sleep(0.1)
        assert handler.began == []
        await witness.delete(f"{{chasqui:{queue_name}}}:paused")
        await eventually(lambda: handler.began)


async def test_a_lost_connection_does_not_end_a_pause(proxy: Proxy, queue: Queue, queue_name: str) -> None:
    handler = Starts()
    async with Worker(queue_name, handler, redis_url=proxy.url, lease_ms=600) as worker:
        await queue.pause()
        await eventually(lambda: heeds_pause(worker))
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
    async with Worker(queue_name, handler, redis_url=f"{redis_url}?protocol={protocol}", lease_ms=300) as worker:
        await check_pause_is_heeded(queue, worker, handler)


async def check_pause_is_heeded(queue: Queue, worker: Worker, handler: Starts) -> None:
    """A job that is added while the queue is paused starts once it is resumed."""
    await queue.pause()
    await eventually(lambda: heeds_pause(worker))
    await queue.add("send")
    await asyncio.sleep(0.1)
    assert handler.began == []
    await queue.resume()
    await eventually(lambda: len(handler.began) == 1)


async def _waits(queue: Queue, count: int) -> bool:
    return (await queue.counts()).waiting == count


async def test_a_worker_that_may_not_unblock_its_read_takes_nothing_either(
    queue: Queue, server: RedisServer, redis_url: str, queue_name: str
) -> None:
    if server.version < (7, 0, 0):
        pytest.skip("a right to one subcommand cannot be taken away there")
    server.execute("ACL", "SETUSER", "bound", "on", ">word", "~*", "&*", "+@all", "-client|unblock")
    handler = Starts()
    url = redis_url.replace("unix://", "unix://bound:word@")
    try:
        async with Worker(queue_name, handler, redis_url=url, read_block_ms=20_000) as worker:
            await check_pause_is_heeded(queue, worker, handler)
    finally:
        server.execute("ACL", "DELUSER", "bound")
