"""A job that is not started in time is not run any more: it is dead, and its reason is `expired`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from pychasqui import Job, JobExpired, JobFailed, Queue, QueueEvents, Worker
from pychasqui._wire.envelope import decode_envelope, read_expiry_ms_or_none, read_timeout_s_or_zero
from pychasqui._worker import server_clock
from pychasqui.errors import InvalidArgument, InvalidType
from pychasqui.metrics import InMemorySink
from tests.support.proxy import Proxy
from tests.support.streams import Stream
from tests.support.waiting import eventually

SOON = timedelta(milliseconds=20)
LATER = timedelta(hours=1)


async def never_called(job: Job) -> None:
    raise AssertionError("an expired job was started")


async def test_a_job_that_no_worker_has_started_in_time_is_dead(
    queue: Queue, make_worker: Callable[..., Worker], redis_url: str
) -> None:
    sink = InMemorySink()
    async with QueueEvents(queue.name, redis_url=redis_url) as events:
        await events.start()
        job = await queue.add("report", expires_in=SOON)
        await asyncio.sleep(0.05)
        async with make_worker(never_called, metrics=sink):
            with pytest.raises(JobExpired, match="expired") as failure:
                await job.wait_for_result()
        kinds: list[str] = []
        while "dlq" not in kinds:
            kinds.append((await anext(events)).name)
    assert isinstance(failure.value, JobFailed)
    assert [kind for kind in kinds if kind != "drained"] == ["expired", "dlq"]
    assert [(route.reason, route.attempt, route.name) for route in sink.dlq_routes] == [("expired", 0, "report")]
    assert sink.job_outcomes == []
    await queue.dlq.purge()


@pytest.mark.parametrize("is_plain", (False, True))
async def test_a_job_that_is_started_in_time_runs(
    queue: Queue, make_worker: Callable[..., Worker], is_plain: bool
) -> None:
    async def handle(job: Job) -> Any:
        return job.data

    async with make_worker((lambda job: job.data) if is_plain else handle, store_results=True):
        jobs = [await queue.add("report", number, expires_in=LATER) for number in range(5)]
        assert await queue.wait_for_results([job.id for job in jobs]) == list(range(5))


async def test_a_job_is_not_judged_by_a_wrong_clock_of_its_worker_while_the_server_is_away(
    queue: Queue, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(job: Job) -> str:
        return "done"

    monkeypatch.setattr(server_clock, "ASK_AGAIN_S", 0.01)
    monkeypatch.setattr(server_clock, "time", SimpleNamespace(time=lambda: time.time() + 2 * LATER.total_seconds()))
    async with Proxy(redis_url) as proxy, Worker(queue.name, handle, redis_url=proxy.url, store_results=True):
        cut = proxy.cut_before_request(b"$4\r\nTIME\r\n")
        job = await queue.add("report", expires_in=LATER)
        assert await job.wait_for_result() == "done"
        assert cut.done.is_set()


async def test_a_job_expires_while_it_waits_inside_a_busy_worker(
    queue: Queue, make_worker: Callable[..., Worker]
) -> None:
    ran: list[str] = []
    gate = asyncio.Event()

    async def handle(job: Job) -> None:
        ran.append(job.name)
        await gate.wait()

    async with make_worker(handle, concurrency=1):
        await queue.add_bulk([{"name": "long"}, {"name": "short", "expires_in": timedelta(milliseconds=100)}])
        await eventually(lambda: ran)
        await asyncio.sleep(0.2)
        gate.set()
        await eventually(queue.dlq.count)
    assert ran == ["long"]
    await queue.dlq.purge()


async def test_the_time_is_the_servers_and_survives_a_delay(queue: Queue, stream: Stream, witness: Any) -> None:
    before = await server_ms(witness)
    await queue.add("report", expires_in=timedelta(seconds=100), timeout=LATER)
    await queue.add("report", expires_in=timedelta(seconds=100), delay=timedelta(seconds=50), job_id="one")
    after = await server_ms(witness)
    assert await queue.run_now("one")
    entries = await witness.xrange(f"{{chasqui:{queue.name}}}:stream")
    assert len(entries) == 2
    for _, fields in entries:
        envelope = decode_envelope(fields[b"d"])
        assert before + 100_000 <= (read_expiry_ms_or_none(envelope.extras) or 0) <= after + 100_001


async def test_a_job_of_a_producer_whose_clock_is_at_1970_expires_and_has_its_timeout(
    queue: Queue, stream: Stream, witness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small machine without a battery starts there. The time of Redis takes the place of eight bytes."""
    monkeypatch.setattr("pychasqui._producer.encoder._now_ms", lambda: 1000)
    before = await server_ms(witness)
    await queue.add("report", expires_in=timedelta(seconds=100), timeout=LATER)
    ((_, fields),) = await witness.xrange(stream.key)
    envelope = decode_envelope(fields[b"d"])
    assert (read_expiry_ms_or_none(envelope.extras) or 0) >= before + 100_000
    assert read_timeout_s_or_zero(envelope.extras) == LATER.total_seconds()


async def server_ms(witness: Any) -> int:
    seconds, micros = await witness.time()
    return int(seconds * 1000 + micros // 1000)


async def test_a_retry_that_comes_too_late_is_not_run(queue: Queue, make_worker: Callable[..., Worker]) -> None:
    runs = 0

    async def fail(job: Job) -> None:
        nonlocal runs
        runs += 1
        raise RuntimeError("again later")

    async with make_worker(fail):
        await queue.add("report", expires_in=timedelta(milliseconds=200), backoff=500)
        letters = await eventually(queue.dlq.page)
    assert (letters[0].reason, letters[0].attempts, runs) == ("expired", 1, 1)
    await queue.dlq.purge()


async def test_a_replayed_job_does_not_expire_again(queue: Queue, make_worker: Callable[..., Worker]) -> None:
    job = await queue.add("report", "data", expires_in=SOON, timeout=LATER)
    await asyncio.sleep(0.05)
    async with make_worker(never_called):
        await eventually(queue.dlq.count)

    async def handle(job: Job) -> Any:
        return job.data

    async with make_worker(handle, store_results=True):
        await queue.dlq.replay()
        assert await job.wait_for_result() == "data"


async def test_expires_in_is_a_timedelta_longer_than_the_delay(queue: Queue) -> None:
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"expires_in": 5}, InvalidType, "expires_in must be a timedelta"),
        ({"expires_in": timedelta(0)}, InvalidArgument, "expires_in is 0 ms, must be at least 1"),
        ({"expires_in": SOON, "delay": LATER}, InvalidArgument, "must be longer than the delay"),
        ({"expires_in": SOON, "delay_ms": datetime.now(UTC) + LATER}, InvalidArgument, "must be longer than the delay"),
        ({"expires_in": SOON, "repeat": {"kind": "every", "interval_ms": 1000}}, InvalidArgument, "contradicts repeat"),
    ]
    for options, kind, text in wrong:
        with pytest.raises(kind, match=text):
            await queue.add("report", **options)


@pytest.mark.parametrize("data", ({"x": 1}, [1, 2, 3, 4], None, "text"))
async def test_a_cancellation_that_another_job_has_left_behind_costs_no_job_that_may_expire(
    queue: Queue, make_worker: Callable[..., Worker], data: Any
) -> None:
    ran: list[tuple[str, Any]] = []

    async def handle(job: Job) -> None:
        if job.name != "filler":
            ran.append((job.name, job.data))
        if job.name == "careless":
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)  # while the next job waits for the server's time

    await queue.add_bulk([{"name": "filler"}] * 500)  # so that the next two come in one read
    await queue.add("careless")
    await queue.add("report", data, expires_in=LATER)
    async with make_worker(handle, concurrency=1) as worker:
        await eventually(lambda: len(ran) == 2)
        await worker.wait_until_idle()
    assert ran == [("careless", None), ("report", data)]
    assert await queue.dlq.page() == []
