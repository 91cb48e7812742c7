"""Messages are hints and keys decide: a message that any client can publish moves no job, and holds none up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Job, Queue, Worker
from tests.support.handlers import RecordingHandler
from tests.support.waiting import eventually
from tests.support.worker_parts import heeds_pause


@pytest.fixture
async def queue(queue: Queue) -> AsyncIterator[Queue]:
    yield queue
    await queue.obliterate()


@asynccontextmanager
async def flooded(witness: redis.asyncio.Redis, channel: str, *messages: str) -> AsyncIterator[None]:
    """With messages on their way all the time. A flag ends them: redis-py may swallow a cancellation."""
    is_over = asyncio.Event()

    async def flood() -> None:
        while not is_over.is_set():
            for message in messages:
                await witness.publish(channel, message)
            await asyncio.sleep(0)

    flooding = asyncio.create_task(flood())
    try:
        yield
    finally:
        is_over.set()
        await flooding


async def calls_of(witness: redis.asyncio.Redis, command: str) -> int:
    stats: Any = await witness.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))


async def test_a_message_that_the_queue_is_paused_pauses_nothing(
    queue: Queue, make_worker: Callable[..., Worker], witness: redis.asyncio.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "chasqui.worker")
    runs = RecordingHandler()
    async with make_worker(runs), flooded(witness, f"{{chasqui:{queue.name}}}:pause", "pause"):
        for number in range(20):
            await queue.add("mail", number)
            await eventually(partial(runs.has_run, number))
    assert "the queue is paused" not in caplog.text


async def test_a_flood_of_messages_is_looked_into_fifty_times_a_second_and_the_last_of_them_counts(
    queue: Queue, make_worker: Callable[..., Worker], witness: redis.asyncio.Redis
) -> None:
    """The second is the measurement, not a wait."""
    runs = RecordingHandler()
    async with make_worker(runs) as worker:
        began, before = monotonic(), await calls_of(witness, "exists")
        async with flooded(witness, f"{{chasqui:{queue.name}}}:pause", "pause", "resume"):
            await asyncio.sleep(1)
        assert await calls_of(witness, "exists") - before < 60 * (monotonic() - began)
        await queue.pause()
        await eventually(lambda: heeds_pause(worker))
        await queue.add("mail", 1)
        await asyncio.sleep(0.2)
        assert runs.jobs == []
        await queue.resume()
        await eventually(lambda: runs.jobs)


@pytest.mark.parametrize("channel", ("due", "repeat:due"))
async def test_a_flood_of_due_times_makes_no_leader_spin(
    queue: Queue, make_worker: Callable[..., Worker], witness: redis.asyncio.Redis, channel: str
) -> None:
    """The second is the measurement, not a wait."""
    runs = RecordingHandler()
    async with make_worker(runs):
        await queue.add("mail", 1, delay_ms=1500)
        messages = ("0", "-1", "-inf", "nan", "1e308", "x", "9" * 1000, "")
        before = await calls_of(witness, "evalsha")
        async with flooded(witness, f"{{chasqui:{queue.name}}}:{channel}", *messages):
            await asyncio.sleep(1)
            assert await calls_of(witness, "evalsha") - before < 300
            await eventually(lambda: runs.jobs)


async def test_the_leader_alone_follows_due_times_also_after_retries(
    queue: Queue, make_worker: Callable[..., Worker], witness: redis.asyncio.Redis
) -> None:
    """A single retry once made every worker look at every due time. The seconds are the measurement, not a wait."""
    failed: set[str] = set()

    async def fail_once(job: Job) -> None:
        if job.name == "flaky" and job.id not in failed:
            failed.add(job.id)
            raise RuntimeError("once")

    async with AsyncExitStack() as stack:
        for _ in range(6):
            await stack.enter_async_context(make_worker(fail_once, concurrency=1))
        await queue.add_bulk({"name": "flaky", "backoff": 100} for _ in range(60))
        await eventually(lambda: len(failed) == 60)
        await asyncio.sleep(0.5)
        await queue.add_bulk({"name": "mail", "delay_ms": 20 * n} for n in range(100))
        before = await calls_of(witness, "zrange")
        await asyncio.sleep(2)
        # The leader looks at each of 100 times, three commands each; the other five once a second.
        inspector_broker = await calls_of(witness, "zrange") - before
        assert inspector_broker < 500, inspector_broker
