"""Queue.cancel() ends a job wherever it is, and says what it has done. Delayed jobs alone: test_cancel.py."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pychasqui import App, Job, JobCancelled, Queue, QueueEvents, SyncQueue, Worker, current_job
from pychasqui._redis.broker import Broker
from pychasqui._redis.connector import Connector
from pychasqui._redis.keys import Keys
from pychasqui.metrics import InMemorySink
from tests.support.gate import Gate
from tests.support.streams import Stream
from tests.support.waiting import eventually

LATER = timedelta(hours=1)
IDS = (None, "order-17")  # an id of the queue's making, and one of the user's


def notes_key(queue: Queue) -> str:
    return f"{{chasqui:{queue.name}}}:cancelled"


async def kinds_of(events: QueueEvents, last: str) -> list[str]:
    kinds: list[str] = []
    while last not in kinds:
        kinds.append((await anext(events)).name)
    return [kind for kind in kinds if kind != "drained"]


@pytest.mark.parametrize("job_id", IDS)
@pytest.mark.parametrize("delay", (None, LATER))
async def test_a_job_that_has_not_reached_a_worker_is_removed(
    queue: Queue, stream: Stream, redis_url: str, job_id: str | None, delay: timedelta | None
) -> None:
    job = await queue.add("report", job_id=job_id, delay=delay)
    assert await queue.cancel(job.id) == "removed"
    assert (await stream.length(), await stream.found_by_id()) == (0, [])
    assert await queue.cancel(job.id) == "unknown"


async def test_a_removed_job_is_counted_and_the_waits_for_its_result_end(queue_name: str, redis_url: str) -> None:
    sink = InMemorySink()

    async def fail(job: Job) -> None:
        raise RuntimeError("again later")

    async with (
        Queue(queue_name, redis_url=redis_url, metrics=sink) as queue,
        Worker(queue_name, fail, redis_url=redis_url),
    ):
        job = await queue.add("report", backoff=60_000)
        await eventually(lambda: _is(queue, job.id, "retrying"))
        waiting = asyncio.ensure_future(job.wait_for_result())
        await asyncio.sleep(0)
        assert await queue.cancel(job.id) == "removed"
        with pytest.raises(JobCancelled, match="was cancelled"):
            await waiting
        assert (await queue.status(job.id)).state == "cancelled"
    assert [(one.count, one.mode, one.name) for one in sink.cancellations] == [(1, "removed", "report")]


async def test_a_wait_for_a_delayed_job_ends_when_that_is_cancelled_by_itself_or_in_a_bulk(
    queue: Queue, make_worker: Callable[..., Worker]
) -> None:
    async def succeed(job: Job) -> None: ...

    async with make_worker(succeed, store_results=True):
        await (await queue.add("report")).wait_for_result()  # so that the queue has events
        jobs = [await queue.add("report", delay=timedelta(hours=1)) for _ in range(3)]
        waiting = [asyncio.ensure_future(job.wait_for_result()) for job in jobs]
        assert await queue.cancel_delayed(jobs[0].id)
        assert await queue.cancel_delayed_bulk([job.id for job in jobs]) == [False, True, True]
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(end) for end in ends] == [JobCancelled] * 3
        assert (await queue.status(jobs[2].id)).state == "cancelled"


async def _is(queue: Queue, job_id: str, state: str) -> bool:
    return (await queue.status(job_id)).state == state


@pytest.mark.parametrize("job_id", IDS)
async def test_a_running_handler_is_cancelled_and_its_job_ends_without_a_retry_or_a_letter(
    queue: Queue, make_worker: Callable[..., Worker], witness: Any, redis_url: str, stream: Stream, job_id: str | None
) -> None:
    sink, began, ended = InMemorySink(), asyncio.Event(), asyncio.Event()

    async def slow(job: Job) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            assert job.is_cancelled
            ended.set()

    async with QueueEvents(queue.name, redis_url=redis_url) as events, make_worker(slow, metrics=sink):
        await events.start()
        job = await queue.add("report", job_id=job_id)
        await began.wait()
        assert await queue.cancel(job.id) == "stopping"
        await ended.wait()
        with pytest.raises(JobCancelled):
            await job.wait_for_result()
        assert await kinds_of(events, "cancelled") == ["active", "cancelled"]
        await eventually(lambda: sink.cancellations)
        assert await queue.cancel(job.id) == "unknown"
        assert (await stream.length(), await witness.exists(notes_key(queue))) == (0, 0)
    assert [(one.kind, one.attempt) for one in sink.job_outcomes] == [("cancelled", 1)]
    assert [(one.mode, one.name) for one in sink.cancellations] == [("stopped", "report")]
    assert (await queue.dlq.count(), await stream.found_by_id()) == (0, [])


async def test_a_thread_is_asked_and_may_return_all_the_same(
    queue: Queue, make_worker: Callable[..., Worker], witness: Any
) -> None:
    def slow(job: Job) -> str:
        while not job.is_cancelled:
            time.sleep(0.002)
        if job.name == "stubborn":
            return "done all the same"
        raise RuntimeError("asked to stop")

    async with make_worker(slow, store_results=True):
        stubborn, obedient = await queue.add("stubborn"), await queue.add("obedient")
        for job in (stubborn, obedient):
            await eventually(lambda: _is(queue, job.id, "running"))  # noqa: B023
            assert await queue.cancel(job.id) == "stopping"
        assert await stubborn.wait_for_result() == "done all the same"
        with pytest.raises(JobCancelled):
            await obedient.wait_for_result()
        await eventually(lambda: no_notes(witness, queue))


async def no_notes(witness: Any, queue: Queue) -> bool:
    return not await witness.exists(notes_key(queue))


async def test_a_coroutine_that_a_plain_handler_returns_is_cancelled(
    queue: Queue, make_worker: Callable[..., Worker]
) -> None:
    began, ends = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ends.set()

    async with make_worker(lambda job: work(job)):
        job = await queue.add("report")
        await asyncio.wait_for(began.wait(), 10)
        assert await queue.cancel(job.id) == "stopping"
        with pytest.raises(JobCancelled):
            await job.wait_for_result()
        assert ends.is_set()
        assert await queue.dlq.count() == 0


@pytest.mark.parametrize("is_plain", (False, True))
async def test_a_job_that_waits_inside_a_worker_is_not_started(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream, is_plain: bool
) -> None:
    """Short jobs come right before it, so that the worker fetches ahead: after an idle moment it would not."""
    ran: list[str] = []
    gate = asyncio.Event()
    names = [*["short"] * 500, "first", "second", "third"]

    async def handle(job: Job) -> None:
        ran.append(job.name)
        if job.name == "first":
            await gate.wait()

    def block(job: Job) -> None:
        ran.append(job.name)
        while job.name == "first" and not gate.is_set():
            time.sleep(0.002)

    async with make_worker(block if is_plain else handle, concurrency=1):
        *_, second, _third = await queue.add_bulk({"name": name} for name in names)
        await eventually(lambda: ran[-1:] == ["first"])
        await eventually(lambda: _is(queue, second.id, "running"))  # a worker has it
        assert await queue.cancel(second.id) == "stopping"
        with pytest.raises(JobCancelled):
            await second.wait_for_result()
        gate.set()
        await eventually(stream.is_settled)
    assert ran[-2:] == ["first", "third"]
    assert "second" not in ran


async def test_a_job_that_fails_after_its_cancel_is_not_retried(
    queue: Queue, make_worker: Callable[..., Worker], witness: Any, stream: Stream
) -> None:
    """The worker does not know of the note yet: the script that would reschedule the job sees it."""

    async def fail(job: Job) -> None:
        entries = await witness.xrange(f"{{chasqui:{queue.name}}}:stream")
        await witness.hset(notes_key(queue), entries[0][0], "1")
        raise RuntimeError("at the same moment")

    async with make_worker(fail):
        job = await queue.add("report", backoff=1)
        with pytest.raises(JobCancelled):
            await job.wait_for_result()
        await eventually(stream.is_settled)
    assert (await queue.dlq.count(), await witness.exists(notes_key(queue))) == (0, 0)


async def test_a_cancel_of_an_id_that_is_gone_does_not_concern_the_next_job_of_that_id(
    queue: Queue, make_worker: Callable[..., Worker], witness: Any, stream: Stream
) -> None:
    gate = Gate()
    async with make_worker(gate, store_results=True, lease_ms=600):
        keeps_the_stream = await queue.add("other")  # so that notes are not removed because the stream is empty
        await eventually(lambda: _is(queue, keeps_the_stream.id, "running"))
        await witness.hset(notes_key(queue), "id order-17", (await witness.xrange(stream.key))[-1][0])
        assert await queue.cancel("order-17") == "unknown"
        job = await queue.add("report", job_id="order-17")
        gate.opened.set()
        await job.wait_for_result()
        await keeps_the_stream.wait_for_result()
        await eventually(lambda: no_notes(witness, queue))


async def test_a_promoted_job_is_found_by_its_id_alone(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream, witness: Any
) -> None:
    """Its entry is far from the time in its id."""
    cancelled = 0

    async def slow(job: Job) -> None:
        nonlocal cancelled
        if job.attempt == 0:
            raise RuntimeError("again")
        try:
            await asyncio.sleep(60)
        finally:
            cancelled += 1

    async with make_worker(slow):
        job = await queue.add("report", backoff=1)
        await eventually(lambda: _has_attempt(queue, job.id, 2))
        assert await queue.cancel(job.id) == "stopping"
        await eventually(lambda: cancelled == 1)
        await eventually(stream.is_settled)
        await eventually(lambda: no_notes(witness, queue))


async def _has_attempt(queue: Queue, job_id: str, attempt: int) -> bool:
    status = await queue.status(job_id)
    return status.state == "running" and status.attempt == attempt


async def test_a_worker_that_starts_heeds_the_notes_that_are_there(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream, witness: Any
) -> None:
    job = await queue.add("report")
    await witness.xgroup_create(stream.key, "default", "0")
    await witness.xreadgroup("default", "pod-0", {stream.key: ">"})  # as a worker of that name that was killed
    assert await queue.cancel(job.id) == "stopping"

    async def never_called(job: Job) -> None:
        raise AssertionError("a cancelled job was started")

    async with make_worker(never_called, consumer_id="pod-0"):
        with pytest.raises(JobCancelled):
            await job.wait_for_result()
        await eventually(lambda: no_notes(witness, queue))


async def test_notes_are_found_in_a_queue_that_is_paused_meanwhile(
    queue_name: str, redis_url: str, witness: Any
) -> None:
    keys = Keys(queue_name)

    class PausedMeanwhile(Broker):
        async def call(self, *words: Any) -> Any:
            reply = await super().call(*words)
            await witness.set(keys.paused, "1")
            return reply

    connection = Connector(redis_url, tls=False, client_name="chasqui-test").make_connection(timeout_s=5)
    try:
        await witness.hset(keys.cancelled, "1-1", "1")
        assert await PausedMeanwhile(connection, keys).read_queue_flags() == (True, True)
    finally:
        await witness.delete(keys.cancelled, keys.paused)
        await connection.close()


def test_synchronous_code_cancels_too(queue_name: str, redis_url: str) -> None:
    with SyncQueue(queue_name, redis_url=redis_url) as queue:
        job = queue.add("report", delay=LATER)
        assert queue.cancel(job.id) == "removed"
        assert queue.cancel(job.id) == "unknown"


async def test_a_task_is_cancelled_by_its_handle(queue_name: str, redis_url: str) -> None:
    app = App(redis_url)

    @app.task(queue=queue_name)
    def report() -> str:
        while not current_job().is_cancelled:
            time.sleep(0.002)
        raise RuntimeError("asked to stop")

    async with app, app.worker():
        handle = await report.enqueue()
        await eventually(lambda: _is(app.queue(queue_name), handle.id, "running"))
        assert await handle.cancel() == "stopping"
        with pytest.raises(JobCancelled):
            await handle.result()
        assert await report.handle("another").cancel() == "unknown"


async def test_each_of_many_jobs_is_cancelled_or_done_and_never_both(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream, witness: Any, redis_url: str
) -> None:
    """A short form of the race: `python -m tests.chaos.cancel_race` runs 10,000 jobs from four processes."""
    count, done, began = 600, list[str](), set[str]()

    async def handle(job: Job) -> None:
        began.add(job.id)
        await asyncio.sleep(random.random() * 0.05)
        done.append(job.id)

    async with make_worker(handle, concurrency=50), make_worker(handle, concurrency=50):
        jobs = await queue.add_bulk(
            {
                "name": "race",
                **({"job_id": f"id-{n}"} if n % 3 == 0 else {}),
                **({"delay_ms": n % 300} if n % 2 else {}),
            }
            for n in range(count)
        )
        answers = await asyncio.gather(*(_cancel(queue, job) for job in jobs))
        await eventually(stream.is_settled, timeout=30)
        await eventually(lambda: no_notes(witness, queue), timeout=30)
    removed = {job.id for job, answer in zip(jobs, answers, strict=True) if answer == "removed"}
    cancelled = await cancelled_ids(witness, queue) | removed  # the first have no event: the queue had none
    assert not cancelled & set(done)
    assert cancelled | set(done) == {job.id for job in jobs}
    assert len(set(done)) == len(done)
    assert not removed & began
    assert not await stream.found_by_id()


async def _cancel(queue: Queue, job: Job) -> str:
    await asyncio.sleep(random.random() * 0.4)
    return await queue.cancel(job.id)


async def cancelled_ids(witness: Any, queue: Queue) -> set[str]:
    events = await witness.xrange(f"{{chasqui:{queue.name}}}:events")
    return {fields[b"id"].decode() for _, fields in events if fields[b"e"] == b"cancelled"}


async def test_a_job_whose_window_is_over_is_found_behind_many_others(
    queue: Queue, witness: Any, stream: Stream
) -> None:
    await queue.add_bulk({"name": "other"} for _ in range(600))
    await queue.add("report", job_id="order-17", unique_for=1)
    await eventually(lambda: _is_gone(witness, f"{{chasqui:{queue.name}}}:unique:order-17"))
    await queue.add_bulk({"name": "other"} for _ in range(10))
    assert await queue.cancel("order-17") == "removed"
    assert await queue.cancel("order-17") == "unknown"
    assert await stream.length() == 610


@pytest.mark.parametrize(
    "bounds", ({"MAX_SEARCHED_WITHOUT_TIME": 20}, {"MAX_SEARCHED": 20, "MAX_SEARCHED_BYTES": 1000}), ids=str
)
async def test_a_job_whose_window_is_over_is_not_started_also_if_it_is_not_found(
    queue: Queue,
    make_worker: Callable[..., Worker],
    witness: Any,
    stream: Stream,
    monkeypatch: pytest.MonkeyPatch,
    bounds: dict[str, int],
) -> None:
    for name, value in bounds.items():
        monkeypatch.setattr(f"pychasqui.cancellation.{name}", value)
    ran: list[str] = []

    async def handle(job: Job) -> None:
        ran.append(job.name)

    await queue.add_bulk({"name": "other"} for _ in range(30))
    await queue.add("report", job_id="order-17", unique_for=1)
    await eventually(lambda: _is_gone(witness, f"{{chasqui:{queue.name}}}:unique:order-17"))
    assert await queue.cancel("order-17") == "stopping"
    async with make_worker(handle):
        await eventually(stream.is_settled)
    assert ran == ["other"] * 30


@pytest.mark.parametrize("delay", (None, LATER), ids=("waiting", "delayed"))
async def test_a_wait_for_a_job_that_is_purged_ends(
    queue: Queue, make_worker: Callable[..., Worker], delay: timedelta | None
) -> None:
    async def handle(job: Job) -> None:
        pass

    async with make_worker(handle, store_results=True):
        await (await queue.add("first")).wait_for_result()  # from now on the queue has events
    jobs = [await queue.add("report", delay=delay) for _ in range(3)]
    waits = [asyncio.ensure_future(job.wait_for_result(timeout=20)) for job in jobs]
    await asyncio.sleep(0.05)
    assert await queue.drain(delayed=True) == 3
    ends = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 10)
    assert [type(end) for end in ends] == [JobCancelled] * 3


async def _is_gone(witness: Any, key: str) -> bool:
    return not await witness.exists(key)
