"""Cancelling, moving and running delayed jobs by their ids: P11.

cancel removes the job with its keys          TestCancel.test_a_cancelled_job_leaves_no_key
unknown, promoted, done: False                TestCancel
the same id again                             TestCancel.test_the_id_can_be_used_again
bulk: order, survivors, empty                 TestCancel.test_the_answers_of_a_bulk_come_in_order_and_the_other_jobs_run
a name changes nothing                        tests/integration/test_delayed.py::TestNames
waiting for a retry                           TestCancel.test_a_job_that_waits_for_its_next_try
the race with promotion                       TestRace
promotion removes the index only              tests/integration/test_delayed.py, test_unique.py
reschedule, run_now                           TestMove
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Job, Queue, Worker
from tests.support.delayed import Delayed
from tests.support.handlers import RecordingHandler
from tests.support.streams import Stream
from tests.support.waiting import eventually, first_below

LATER_MS = 60_000
RACERS = 2000
pytestmark = pytest.mark.usefixtures("stream", "delayed")  # so that the remaining jobs are removed


class TestCancel:
    @pytest.mark.parametrize("job_id", (None, "order-17"))
    async def test_a_cancelled_job_leaves_no_key(
        self, queue: Queue, stream: Stream, delayed: Delayed, job_id: str | None
    ) -> None:
        """Cancelling takes the id that add() returned, also if the caller did not choose it."""
        job = await queue.add("later", job_id=job_id, delay_ms=LATER_MS)
        assert await queue.cancel_delayed(job.id)
        assert await delayed.count() == 0
        assert await stream.found_by_id() == []
        assert not await queue.cancel_delayed(job.id)

    async def test_a_job_that_is_not_delayed_is_not_cancelled(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        """An unknown, waiting, promoted or finished job answers False, and the job runs."""
        runs = RecordingHandler()
        assert not await queue.cancel_delayed("never heard of")
        now = await queue.add("now", "now", job_id="now")
        later = await queue.add("later", "later", delay_ms=20)
        assert not await queue.cancel_delayed(now.id)
        async with make_worker(runs):
            await eventually(lambda: sorted(runs.data) == ["later", "now"])
            assert not await queue.cancel_delayed(later.id)
            await eventually(stream.is_settled)
        assert await queue.cancel_delayed_bulk([now.id, later.id]) == [False, False]
        assert not await queue.run_now(later.id)
        assert not await queue.reschedule(later.id, 5)

    async def test_the_id_can_be_used_again(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        runs = RecordingHandler()
        await queue.add("later", 1, job_id="one", delay_ms=20)
        assert await queue.cancel_delayed("one")
        assert (await queue.add("later", 2, job_id="one", delay_ms=20)).is_new
        async with make_worker(runs):
            await eventually(lambda: runs.jobs)
            await eventually(stream.is_settled)
        assert runs.data == [2]

    async def test_the_answers_of_a_bulk_come_in_order_and_the_other_jobs_run(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        """The bulk is larger than one call to Redis."""
        runs = RecordingHandler()
        jobs = await queue.add_bulk({"name": "later", "data": n, "delay_ms": 1500} for n in range(1200))
        ids = [job.id for job in jobs]
        asked = [each for pair in zip(ids[::2], (f"unknown-{n}" for n in range(600)), strict=True) for each in pair]
        assert await queue.cancel_delayed_bulk(asked) == [True, False] * 600
        async with make_worker(runs):
            await eventually(lambda: len(runs.jobs) == 600)
            await eventually(stream.is_settled)
        assert sorted(runs.data) == list(range(1, 1200, 2))

    async def test_an_id_twice_in_one_call_is_cancelled_once(self, queue: Queue) -> None:
        job = await queue.add("later", delay_ms=LATER_MS)
        assert await queue.cancel_delayed_bulk([job.id, job.id]) == [True, False]

    async def test_an_empty_bulk_sends_no_command(self, queue: Queue, witness: Any) -> None:
        assert await queue.cancel_delayed_bulk([]) == []
        assert await queue.cancel_delayed_bulk(iter(())) == []
        assert await witness.dbsize() == 0

    @pytest.mark.parametrize("job_id", (None, "order-17"))
    async def test_a_job_that_waits_for_its_next_try(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, delayed: Delayed, job_id: str | None
    ) -> None:
        async def fail(job: Job) -> None:
            raise RuntimeError("again later")

        async with make_worker(fail):
            job = await queue.add("fails", job_id=job_id, backoff=LATER_MS)
            await eventually(delayed.count)
            assert await queue.cancel_delayed(job.id)
        assert await delayed.count() == 0
        assert await stream.found_by_id() == []
        assert await queue.dlq.count() == 0


class TestMove:
    async def due_in_ms(self, delayed: Delayed) -> float:
        (score,) = await delayed.scores()
        return score - time.time() * 1000

    @pytest.mark.parametrize("job_id", (None, "order-17"))
    async def test_a_time_can_be_moved_to_and_fro(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, delayed: Delayed, job_id: str | None
    ) -> None:
        runs = RecordingHandler()
        job = await queue.add("later", 1, job_id=job_id, delay_ms=1000)
        assert await queue.reschedule(job.id, LATER_MS)
        assert LATER_MS - 5000 < await self.due_in_ms(delayed) <= LATER_MS + 1
        assert await queue.reschedule(job.id, timedelta(days=20))
        assert await queue.reschedule(job.id, 10)
        async with make_worker(runs):
            await eventually(lambda: runs.data == [1])
            await eventually(stream.is_settled)
        assert await stream.found_by_id() == []

    async def test_a_job_that_is_put_off_for_long_is_found_as_long(self, queue: Queue, witness: Any) -> None:
        await queue.add("later", job_id="one", delay_ms=1000)
        assert await queue.reschedule("one", timedelta(days=25))
        for key in ("unique:one", "dlid:one", "didx:one"):
            assert await witness.pttl(f"{{chasqui:{queue.name}}}:{key}") > 25 * 86_400_000

    async def test_a_sleeping_promoter_hears_of_a_job_that_is_due_sooner_now(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        runs = RecordingHandler()
        async with make_worker(runs):

            async def run_sooner() -> float:
                runs.jobs.clear()
                job = await queue.add("later", 1, delay_ms=LATER_MS)
                await asyncio.sleep(0.3)
                before = time.monotonic()
                assert await queue.reschedule(job.id, 20)
                await eventually(lambda: runs.data == [1])
                return time.monotonic() - before

            await first_below(0.5, run_sooner)

    @pytest.mark.parametrize("job_id", (None, "order-17", "01M7F91ME6X32YC9GXRB8FSV7H"))
    async def test_a_job_can_be_run_at_once(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, delayed: Delayed, job_id: str | None
    ) -> None:
        runs = RecordingHandler()
        job = await queue.add("wörk", 1, job_id=job_id, delay_ms=LATER_MS)
        assert await queue.run_now(job.id)
        assert not await queue.run_now(job.id)
        assert (await delayed.count(), await stream.length()) == (0, 1)
        if job_id:
            assert not (await queue.add("wörk", 2, job_id=job_id)).is_new
        async with make_worker(runs):
            await eventually(lambda: runs.jobs)
            await eventually(stream.is_settled)
        assert [(run.id, run.name, run.data) for run in runs.jobs] == [(job.id, "wörk", 1)]
        assert await stream.found_by_id() == []

    async def test_a_retry_can_be_run_at_once_and_counts_on(
        self, queue: Queue, make_worker: Callable[..., Worker], delayed: Delayed
    ) -> None:
        attempts: list[int] = []

        async def fail_once(job: Job) -> None:
            attempts.append(job.attempt)
            if job.attempt == 0:
                raise RuntimeError("again")

        async with make_worker(fail_once):
            job = await queue.add("fails", backoff=LATER_MS)
            await eventually(delayed.count)
            assert await queue.run_now(job.id)
            await eventually(lambda: attempts == [0, 1])


class TestRace:
    async def test_a_job_is_cancelled_or_run_and_never_both(
        self, redis_url: str, queue_name: str, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        cancelled, ran = await race(redis_url, queue_name, RACERS)
        assert not cancelled & ran
        assert len(cancelled) + len(ran) == RACERS
        assert await stream.found_by_id() == []

    async def test_a_job_runs_once_when_run_now_races_with_promotion(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        runs = RecordingHandler()
        async with make_worker(runs):
            jobs = await queue.add_bulk({"name": "later", "data": n, "delay_ms": 100 + n // 5} for n in range(500))
            await asyncio.gather(*(queue.run_now(job.id) for job in jobs))
            await eventually(lambda: len(runs.jobs) >= 500)
            await eventually(stream.is_settled)
        assert sorted(runs.data) == list(range(500))


async def race(redis_url: str, queue_name: str, count: int) -> tuple[set[str], set[str]]:
    """Cancel jobs as they become due, one by one and in bulks; the ids that were cancelled, and those that ran."""
    ran: list[str] = []
    cancelled: set[str] = set()

    async def handle(job: Job) -> None:
        ran.append(job.id)

    async def cancel(queue: Queue, ids: list[str], size: int) -> None:
        for start in range(0, len(ids), size):
            some = ids[start : start + size]
            answers = await queue.cancel_delayed_bulk(some)
            cancelled.update(job_id for job_id, was in zip(some, answers, strict=True) if was)

    async with (
        Queue(queue_name, redis_url=redis_url) as queue,
        Queue(queue_name, redis_url=redis_url) as other,
        Worker(queue_name, handle, redis_url=redis_url),
        Worker(queue_name, handle, redis_url=redis_url),
    ):
        spread_ms = max(1, count // 4)
        jobs = await queue.add_bulk(
            {"name": "race", "delay_ms": 300 + n % spread_ms, **({"job_id": f"id-{n}"} if n % 2 else {})}
            for n in range(count)
        )
        ids = [job.id for job in jobs]
        await asyncio.sleep(0.3)
        await asyncio.gather(
            *(cancel(queue, ids[lane::8], 1 if lane % 2 else 7) for lane in range(8)),
            *(cancel(other, ids[lane::8], 3) for lane in range(0, 8, 2)),
        )
        await eventually(lambda: len(ran) + len(cancelled) >= count, timeout=30)
        stream = f"{{chasqui:{queue_name}}}:stream"
        async with redis.asyncio.Redis.from_url(redis_url) as witness:
            await eventually(empty(witness, stream))
    assert len(set(ran)) == len(ran)
    return cancelled, set(ran)


def empty(witness: Any, stream: str) -> Callable[[], Any]:
    async def is_empty() -> bool:
        return await witness.xlen(stream) == 0

    return is_empty
