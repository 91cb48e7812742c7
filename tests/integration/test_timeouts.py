"""A run that takes longer than its timeout is stopped, has failed, and is retried like another."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pychasqui import App, Job, JobFailed, Queue, QueueEvents, Worker, current_job
from pychasqui.errors import InvalidArgument, InvalidType
from pychasqui.metrics import InMemorySink
from tests.support.waiting import eventually

SHORT = timedelta(milliseconds=30)
LONG = timedelta(hours=1)


async def test_a_run_over_its_time_is_a_failed_run_and_the_next_one_may_succeed(
    queue: Queue, make_worker: Callable[..., Worker], redis_url: str
) -> None:
    sink, cancelled = InMemorySink(), 0

    async def slow_at_first(job: Job) -> str:
        nonlocal cancelled
        try:
            await asyncio.sleep(60 if job.attempt == 0 else 0)
        except asyncio.CancelledError:
            cancelled += 1
            raise
        return "done"

    async with (
        QueueEvents(queue.name, redis_url=redis_url) as events,
        make_worker(slow_at_first, store_results=True, metrics=sink),
    ):
        await events.start()
        job = await queue.add("report", timeout=SHORT, backoff=1)
        assert await job.wait_for_result() == "done"
        kinds: list[str] = []
        while "retry-scheduled" not in kinds:
            kinds.append((await anext(events)).name)
    assert [kind for kind in kinds if kind != "drained"] == ["active", "timeout", "failed", "retry-scheduled"]
    assert cancelled == 1
    assert [(one.kind, one.attempt) for one in sink.job_outcomes] == [("timeout", 1), ("ok", 2)]


async def test_a_job_that_is_always_too_slow_is_dead_by_a_timeout(
    queue: Queue, make_worker: Callable[..., Worker]
) -> None:
    async def slow(job: Job) -> None:
        await asyncio.sleep(60)

    async with make_worker(slow, timeout=SHORT):
        job = await queue.add("report", attempts=1)
        with pytest.raises(JobFailed) as failure:
            await job.wait_for_result()
    assert (failure.value.error_type, failure.value.reason) == ("JobTimeout", "retries_exhausted")
    (letter,) = await queue.dlq.page()
    assert "in slow" in (letter.traceback or "")
    await queue.dlq.purge()


async def test_a_jobs_own_timeout_is_kept_by_retries_and_goes_before_the_workers(
    queue: Queue, make_worker: Callable[..., Worker]
) -> None:
    runs: list[float] = []

    async def slow(job: Job) -> None:
        began = time.monotonic()
        try:
            await asyncio.sleep(0.3)
        finally:
            runs.append(time.monotonic() - began)

    async with make_worker(slow, timeout=0.05, store_results=True):
        patient = await queue.add("report", timeout=LONG)
        await patient.wait_for_result()
        assert runs.pop() >= 0.29
        await queue.add("report", timeout=SHORT, attempts=3, backoff=1)
        await eventually(queue.dlq.count)
    assert len(runs) == 3
    await queue.dlq.purge()


async def test_a_handler_gives_itself_more_time(queue: Queue, make_worker: Callable[..., Worker]) -> None:
    async def slow(job: Job) -> str:
        job.extend(LONG)
        await asyncio.sleep(0.2)
        return "done"

    async with make_worker(slow, timeout=0.05, store_results=True):
        job = await queue.add("report")
        assert await job.wait_for_result() == "done"


async def test_a_handler_that_swallows_its_cancellations_keeps_its_job_and_its_lane(
    queue: Queue, make_worker: Callable[..., Worker]
) -> None:
    """A second worker looks for jobs whose lease has ended, all the time."""
    runs: list[tuple[str, int]] = []
    running = most = cancellations = 0

    async def swallow(job: Job) -> str:
        nonlocal running, most, cancellations
        runs.append((job.name, job.attempt))
        if job.name == "next":
            return "next"
        running += 1
        most = max(most, running)
        ends_at = time.monotonic() + 3
        while time.monotonic() < ends_at:
            try:
                await asyncio.sleep(ends_at - time.monotonic())
            except asyncio.CancelledError:
                cancellations += 1
        running -= 1
        return "done"

    options: dict[str, Any] = {"concurrency": 1, "lease_ms": 600, "store_results": True}
    async with make_worker(swallow, **options):
        job = await queue.add("slow", timeout=SHORT)
        await eventually(lambda: cancellations)
        behind = await queue.add("next")
        assert (await queue.get_job(job.id)) is not None
        await asyncio.sleep(0.3)
        assert runs == [("slow", 0)], "the lane is not free"
        async with make_worker(swallow, **options):
            assert await behind.wait_for_result() == "next"
            assert await job.wait_for_result() == "done"
    assert (most, cancellations) == (1, 3)
    assert sorted(runs) == [("next", 0), ("slow", 0)]


async def test_a_thread_sees_that_its_time_is_over(queue: Queue, make_worker: Callable[..., Worker]) -> None:
    def slow(job: Job) -> str:
        assert not job.is_cancelled
        while not job.is_cancelled:
            time.sleep(0.002)
        if job.attempt:
            return "done all the same"
        raise RuntimeError("asked to stop")

    async with make_worker(slow, store_results=True):
        job = await queue.add("report", timeout=SHORT, backoff=1)
        assert await job.wait_for_result() == "done all the same"


def test_a_plain_function_and_a_timeout_of_the_worker_contradict_each_other() -> None:
    def plain(job: Job) -> None: ...

    with pytest.raises(InvalidArgument, match="timeout contradicts a handler that is a plain function"):
        Worker("mail", plain, timeout=5)


@pytest.mark.parametrize("wrong", (0, -1, 10**400, float("nan"), float("inf"), timedelta(0), {"mail": 0}))
def test_a_timeout_of_a_worker_is_a_span_above_zero(wrong: Any) -> None:
    async def handle(job: Job) -> None: ...

    with pytest.raises(InvalidArgument, match="must be above 0"):
        Worker("mail", handle, timeout=wrong)


@pytest.mark.parametrize("wrong", ("5", True, {5: 5}, {"mail": "5"}))
def test_a_timeout_of_a_worker_is_seconds_or_a_timedelta(wrong: Any) -> None:
    async def handle(job: Job) -> None: ...

    with pytest.raises(InvalidType, match="timeout"):
        Worker("mail", handle, timeout=wrong)


async def test_a_timeout_of_a_job_is_a_timedelta_of_a_millisecond_or_more(queue: Queue) -> None:
    for wrong, kind in ((5, InvalidType), ("5", InvalidType), (timedelta(0), InvalidArgument)):
        with pytest.raises(kind, match="timeout"):
            await queue.add("report", timeout=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="timeout contradicts repeat"):
        await queue.add("report", repeat={"kind": "every", "interval_ms": 1000}, timeout=LONG)


async def test_a_task_has_a_time_for_its_runs_and_a_call_another(queue_name: str, redis_url: str) -> None:
    app = App(redis_url, queues={queue_name: {"max_attempts": 1}})

    @app.task(queue=queue_name, timeout=SHORT)
    async def report(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    async with app, app.worker():
        with pytest.raises(JobFailed, match="JobTimeout"):
            await (await report.enqueue(60)).result()
        assert await (await report.with_options(timeout=LONG).enqueue(0.15)).result() == "done"
        await app.queue(queue_name).dlq.purge()


async def test_a_plain_task_sees_by_its_job_that_the_queues_time_is_over(queue_name: str, redis_url: str) -> None:
    app = App(redis_url, queues={queue_name: {"timeout": SHORT}})

    @app.task(queue=queue_name)
    def report() -> str:
        while not current_job().is_cancelled:
            time.sleep(0.002)
        return "stopped"

    async with app, app.worker():
        assert await (await report.enqueue()).result() == "stopped"


def test_a_plain_task_cannot_have_a_timeout() -> None:
    app = App()

    @app.task
    def plain() -> None: ...

    with pytest.raises(InvalidArgument, match="timeout contradicts a plain function"):
        app.task(timeout=LONG)(plain.function)
    with pytest.raises(InvalidArgument, match="timeout contradicts a plain function"):
        plain.with_options(timeout=LONG)
    with pytest.raises(InvalidArgument, match="task 'plain': timeout is 0"):
        plain.with_options(timeout=timedelta(0))


async def test_1000_handlers_with_random_timeouts_are_stopped_in_time_and_none_early(
    queue: Queue, make_worker: Callable[..., Worker]
) -> None:
    over_s: list[float] = []

    async def slow(job: Job) -> None:
        began = time.monotonic()
        try:
            await asyncio.sleep(60)
        finally:
            over_s.append(time.monotonic() - began - job.data)

    seconds = [random.uniform(0.05, 0.8) for _ in range(1000)]
    sink = InMemorySink()
    async with make_worker(slow, concurrency=1000, max_attempts=1, events_enabled=False, metrics=sink):
        await queue.add_bulk({"name": "report", "data": each, "timeout": timedelta(seconds=each)} for each in seconds)
        await eventually(lambda: len(over_s) == 1000)
    # By the worker's clock: on a busy machine a handler looks at its own one late.
    taken_s = sorted(ran.handler_duration_us / 1_000_000 for ran in sink.job_outcomes if ran.kind == "timeout")
    assert all(taken >= wanted for taken, wanted in zip(taken_s, sorted(seconds), strict=True))
    assert min(over_s) > -0.1
    assert sorted(over_s)[500] < 0.5  # by hand, on a quiet machine: all of them below 0.06
    await queue.dlq.purge()
