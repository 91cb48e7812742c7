"""A worker that closes hands back what it has not run, whatever else happens while it closes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
import redis.asyncio

from pychasqui import Job, Queue, Worker
from tests.support.streams import Stream
from tests.support.waiting import eventually


async def run_all_and_count_attempts(make_worker: Callable[..., Worker], stream: Stream) -> Counter[tuple[str, int]]:
    ran: Counter[tuple[str, int]] = Counter()

    async def handle(job: Job) -> None:
        ran[job.name, job.attempt] += 1

    async with make_worker(handle):
        await eventually(stream.is_settled)
    return ran


async def test_a_handler_that_goes_on_costs_the_other_cancelled_jobs_no_attempt(
    queue: Queue,
    make_worker: Callable[..., Worker],
    stream: Stream,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pychasqui._worker.lanes.CLEANUP_S", 0.1)
    started: list[str] = []
    may_end = asyncio.Event()

    async def handle(job: Job) -> None:
        started.append(job.name)
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                if job.name == "obedient":
                    raise

    async with make_worker(handle, shutdown_deadline_s=0.1, lease_ms=500):
        await queue.add_bulk({"name": name} for name in ("stubborn", "obedient", "obedient"))
        await eventually(lambda: len(started) == 3)
    may_end.set()
    *_, line = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "1 of its cancelled jobs still run (1 of 'stubborn'): " in line
    assert await run_all_and_count_attempts(make_worker, stream) == {("obedient", 0): 2, ("stubborn", 1): 1}


async def test_entries_that_a_closing_worker_does_not_know_of_are_handed_back(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream, witness: redis.asyncio.Redis
) -> None:
    async def handle(job: Job) -> None: ...

    await queue.add_bulk({"name": "lost"} for _ in range(3))
    await witness.xgroup_create(stream.key, "default", id="0")
    ((_, entries),) = await witness.xreadgroup("default", "other", {stream.key: ">"})
    async with make_worker(handle) as worker:  # as if the reply to its read had been lost
        await witness.xclaim(stream.key, "default", worker.consumer_id, 0, [entry for entry, _ in entries], justid=True)
    assert await run_all_and_count_attempts(make_worker, stream) == {("lost", 0): 3}
