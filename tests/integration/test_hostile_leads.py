"""Foreign writes to the keys of promoter and scheduler end no worker, and /readyz reports what stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pychasqui import Queue, RepeatPattern, Worker
from pychasqui._worker import leader
from tests.support.delayed import Delayed
from tests.support.handlers import RecordingHandler
from tests.support.streams import Stream
from tests.support.waiting import eventually

HOUR_MS = 3_600_000


@pytest.fixture
async def queue(queue: Queue, stream: Stream, witness: Any, queue_name: str) -> AsyncIterator[Queue]:
    yield queue
    for key in await stream.keys():
        if key.startswith(("repeat", "delayed", "promoter", "scheduler")):
            await witness.delete(f"{{chasqui:{queue_name}}}:{key}")


async def readyz(worker: Worker) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.metrics_port)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = (await reader.read()).decode()
    writer.close()
    return answer.partition("\r\n\r\n")[2].strip()


@pytest.mark.parametrize("score", (float("inf"), float("-inf"), 1e308, -1e308, 0.5))
async def test_no_score_of_a_delayed_job_ends_a_worker(
    queue: Queue, make_worker: Callable[..., Worker], delayed: Delayed, witness: Any, score: float
) -> None:
    runs = RecordingHandler()
    await witness.zadd(delayed.key, {b"no job": score})
    async with make_worker(runs, metrics_port=0) as worker:
        for number in range(3):
            await queue.add("mail", number, delay_ms=100)
        await eventually(lambda: len(runs.jobs) == 3)
        assert worker.is_running
        assert await readyz(worker) == "ok"
    await queue.dlq.purge()


@pytest.mark.parametrize("lock", ("promoter", "scheduler"))
async def test_a_foreign_lease_that_stops_promotion_or_firing_is_reported_by_name(
    queue: Queue,
    make_worker: Callable[..., Worker],
    witness: Any,
    queue_name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    lock: str,
) -> None:
    monkeypatch.setattr(leader, "STALLED_S", 0.3)
    key = f"{{chasqui:{queue_name}}}:{lock}:lock"
    runs = RecordingHandler()
    await witness.set(key, "x", px=60_000)
    async with make_worker(runs, metrics_port=0, scheduler_tick_ms=100) as worker:
        if lock == "promoter":
            await queue.add("mail", 1, delay_ms=10)
        else:
            await queue.upsert_repeatable_job("mail", 1, repeat=RepeatPattern.every(10), limit=1)

        async def is_known() -> bool:
            return f"'x' holds the {lock}'s lease and moves nothing" in await readyz(worker)

        await eventually(is_known, timeout=9)
        assert "wait" not in await readyz(worker) or not runs.jobs
        await witness.delete(key)
        await eventually(lambda: runs.jobs)

        async def is_ready() -> bool:
            return await readyz(worker) == "ok"

        await eventually(is_ready)
    assert f"'x' holds the {lock}'s lease" in caplog.text


async def test_a_delayed_set_of_another_type_is_known(
    queue: Queue, make_worker: Callable[..., Worker], witness: Any, queue_name: str
) -> None:
    runs, key = RecordingHandler(), f"{{chasqui:{queue_name}}}:delayed"
    async with make_worker(runs, metrics_port=0) as worker:
        await witness.delete(key)
        await witness.set(key, "a string")

        async def is_known() -> bool:
            return "delayed jobs wait: " in await readyz(worker)

        await eventually(is_known)
        await queue.add("mail", 1)
        await eventually(lambda: runs.jobs)
        await witness.delete(key)
        await queue.add("mail", 2, delay_ms=10)
        await eventually(lambda: len(runs.jobs) == 2)
