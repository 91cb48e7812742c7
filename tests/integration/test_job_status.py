"""queue.status(id): where a job is, also for ids that the queue made up, and what is not known about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from time import time
from typing import Any

import pytest
import redis.asyncio

from pychasqui import InvalidArgument, Job, JobStatus, Queue, RetryPolicy, Worker
from pychasqui._core.ids import read_ulid_time_ms
from tests.support.gate import Gate
from tests.support.waiting import eventually

OLD_ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.fixture
async def queue(queue: Queue) -> AsyncIterator[Queue]:
    yield queue
    await queue.obliterate()


async def state_of(queue: Queue, job_id: str, state: str) -> JobStatus:
    """The status, once it has that state."""

    async def find() -> JobStatus | None:
        status = await queue.status(job_id)
        return status if status.state == state else None

    found = await eventually(find)
    assert found is not None
    return found


def test_an_id_that_a_queue_made_up_carries_its_time() -> None:
    assert read_ulid_time_ms(OLD_ULID) == 1469922850259
    others = ("", "mine", OLD_ULID.lower(), "8" + OLD_ULID[1:], OLD_ULID + "0")
    assert [read_ulid_time_ms(other) for other in others] == [None] * 5


class TestWaiting:
    @pytest.mark.parametrize("job_id", (None, "mine"))
    async def test_a_waiting_job_has_its_data_and_what_is_ahead(self, queue: Queue, job_id: str | None) -> None:
        await queue.add_bulk([{"name": "first"}] * 3)
        job = await queue.add("mail", {"to": "ann"}, job_id=job_id)
        await queue.add("last")
        status = await queue.status(job.id)
        assert (status.state, status.name, status.data, status.attempt) == ("waiting", "mail", {"to": "ann"}, 1)
        assert (status.ahead, status.ahead_is_exact, status.note) == (3, True, "")
        assert status.created_at_ms is not None
        assert abs(status.created_at_ms - 1000 * time()) < 60_000

    async def test_each_job_of_a_long_queue_is_found(self, queue: Queue) -> None:
        """One bulk, whose ids are all made before the first of them is sent, and bulks that follow each other."""
        jobs = await queue.add_bulk([{"name": "mail", "data": number} for number in range(30_000)])
        for start in range(30_000, 40_000, 1000):
            jobs += await queue.add_bulk([{"name": "mail", "data": start + number} for number in range(1000)])
        for place in (0, 1, 999, 1000, 5000, 15_000, 29_999, 30_000, 35_500, 39_000, 39_999):
            status = await queue.status(jobs[place].id)
            assert (status.state, status.data) == ("waiting", place)
            assert status.ahead is not None
            if status.ahead_is_exact:
                assert status.ahead == place
            else:
                assert 1000 <= status.ahead <= 39_000
                assert status.note == "the number of jobs ahead of it is an estimate"
        assert (await queue.status(jobs[999].id)).ahead_is_exact
        assert (await queue.status(jobs[39_500].id)).ahead_is_exact

    async def test_a_status_in_a_long_queue_reads_little(self, queue: Queue, witness: redis.asyncio.Redis) -> None:
        """A quiet machine takes 5 ms for it among a million jobs."""
        jobs = []
        for _ in range(20):
            jobs += await queue.add_bulk([{"name": "mail", "data": "x" * 100}] * 1000)

        async def spent() -> tuple[int, int]:
            stats = await witness.info("stats")
            return stats["total_commands_processed"], stats["total_net_output_bytes"]

        for place in (0, 700, 9000, 15_500, 19_999):
            before = await spent()
            assert (await queue.status(jobs[place].id)).state == "waiting"
            commands, size = (after - one for after, one in zip(await spent(), before, strict=True))
            assert commands < 150
            assert size < 1_500_000  # of 4 MB

    @pytest.mark.parametrize("skew_ms", (-40_000, 3_600_000))
    async def test_the_clock_of_the_process_that_added_it_need_not_be_right(
        self, queue: Queue, monkeypatch: pytest.MonkeyPatch, skew_ms: int
    ) -> None:
        from ulid_transform import ulid_at_time

        await queue.add_bulk([{"name": "before"}] * 3000)
        added: list[Job] = []
        for number in range(5):
            wrong_s = time() - skew_ms / 1000
            jobs = [{"name": "mail", "job_id": ulid_at_time(wrong_s + number / 1000)} for _ in range(300)]
            added = await queue.add_bulk(jobs)
        await queue.add_bulk([{"name": "after"}] * 3000)
        assert (await queue.status(added[150].id)).state == "waiting"

    async def test_a_promoted_job_is_found(self, queue: Queue) -> None:
        job = await queue.add("mail", delay_ms=3_600_000)
        await queue.add_bulk([{"name": "other"}] * 100)
        await queue.pause()
        async with Worker(queue.name, lambda job: None, redis_url=queue_url(queue)) as worker:
            await queue.run_now(job.id)
            status = await state_of(queue, job.id, "waiting")
            assert status.ahead is not None
            await worker.close()


def queue_url(queue: Queue) -> str:
    return queue._config.redis_url


class TestRunning:
    async def test_a_running_job_says_where_and_since_when(self, queue: Queue) -> None:
        gate = Gate()

        async def handle(job: Job) -> None:
            await job.progress(40)
            await gate(job)

        async with Worker(queue.name, handle, redis_url=queue_url(queue), consumer_id="w-1"):
            job = await queue.add("mail")

            async def is_known() -> bool:
                status = await queue.status(job.id)
                return status.state == "running" and status.since_ms is not None and status.progress == 40

            await eventually(is_known)
            status = await queue.status(job.id)
            assert (status.worker, status.attempt, status.note) == ("w-1", 1, "")
            assert status.since_ms is not None
            assert abs(status.since_ms - 1000 * time()) < 60_000
            gate.opened.set()
            await state_of(queue, job.id, "done")

    async def test_a_job_of_a_worker_without_events_has_no_beginning(self, queue: Queue) -> None:
        gate = Gate()
        async with Worker(queue.name, gate, redis_url=queue_url(queue), events_enabled=False):
            job = await queue.add("mail")
            status = await state_of(queue, job.id, "running")
            assert status.since_ms is None
            assert status.note.startswith("when it began is not known")
            assert status.note.endswith("or it still waits inside its worker for a free handler")
            gate.opened.set()
            await eventually(lambda: _is_empty(queue))
            assert (await queue.status(job.id)).state == "unknown"


async def _is_empty(queue: Queue) -> bool:
    counts = await queue.counts()
    return counts.waiting == counts.active == 0


class TestDelayed:
    async def test_a_delayed_job_says_until_when(self, queue: Queue) -> None:
        job = await queue.add("mail", 5, delay_ms=3_600_000)
        status = await queue.status(job.id)
        assert (status.state, status.name, status.data, status.error) == ("delayed", "mail", 5, None)
        assert status.due_ms is not None
        assert 3_500_000 < status.due_ms - 1000 * time() < 3_700_000

    async def test_a_job_between_two_runs_has_its_last_error(self, queue: Queue) -> None:
        async def handle(job: Job) -> None:
            raise ValueError("no such user")

        policy = RetryPolicy(initial_ms=3_600_000, max_ms=3_600_000)
        async with Worker(queue.name, handle, redis_url=queue_url(queue), retry=policy):
            job = await queue.add("mail")
            status = await state_of(queue, job.id, "retrying")
        assert (status.attempt, status.note) == (2, "")
        assert "no such user" in (status.error or "")
        assert status.due_ms is not None


class TestEnded:
    async def test_a_dead_job_has_its_error_and_traceback(self, queue: Queue) -> None:
        async def handle(job: Job) -> None:
            raise ValueError("no such user")

        async with Worker(queue.name, handle, redis_url=queue_url(queue), max_attempts=1, consumer_id="w-1"):
            job = await queue.add("mail", {"to": "ann"})
            status = await state_of(queue, job.id, "dead")
        assert (status.reason, status.error_type, status.error) == ("retries_exhausted", "ValueError", "no such user")
        assert (status.data, status.worker, status.attempt) == ({"to": "ann"}, "w-1", 1)
        assert "in handle" in (status.traceback or "")
        assert status.since_ms is not None
        await queue.dlq.purge()
        status = await queue.status(job.id)
        assert (status.state, status.reason, status.error) == ("dead", "retries_exhausted", "no such user")
        assert status.note.startswith("its dead letter is gone")

    async def test_an_expired_job_is_not_attributed_to_an_official_worker(self, queue: Queue) -> None:
        job = await queue.add("mail", 1, expires_in=timedelta(milliseconds=1))
        await asyncio.sleep(0.01)
        async with Worker(queue.name, lambda job: None, redis_url=queue_url(queue), consumer_id="w-1"):
            status = await state_of(queue, job.id, "dead")
        assert (status.reason, status.worker, status.error, status.note) == ("expired", "w-1", None, "")

    async def test_a_done_job_has_its_result(self, queue: Queue) -> None:
        async with Worker(queue.name, lambda job: {"n": job.data}, redis_url=queue_url(queue), store_results=True):
            job = await queue.add("mail", 7)
            status = await state_of(queue, job.id, "done")
            assert (status.result, status.has_result, status.note) == ({"n": 7}, True, "")

            async def has_name() -> bool:  # it is in the event, which comes behind the result
                return (await queue.status(job.id)).name == "mail"

            await eventually(has_name)

    async def test_a_done_job_without_a_result_says_why(
        self, queue: Queue, witness: redis.asyncio.Redis, queue_name: str
    ) -> None:
        async with Worker(queue.name, lambda job: 1, redis_url=queue_url(queue)):
            job = await queue.add("mail")
            status = await state_of(queue, job.id, "done")
        assert (status.has_result, status.note) == (False, "its worker stores no results")
        async with Worker(queue.name, lambda job: 1, redis_url=queue_url(queue), store_results=True):
            job = await queue.add("mail")
            assert (await state_of(queue, job.id, "done")).result == 1
        await witness.delete(f"{{chasqui:{queue_name}}}:result:{job.id}")
        status = await queue.status(job.id)
        assert (status.state, status.note) == ("done", "its result has expired")

    async def test_a_result_that_cannot_be_read_is_named(
        self, queue: Queue, witness: redis.asyncio.Redis, queue_name: str
    ) -> None:
        await witness.set(f"{{chasqui:{queue_name}}}:result:mine", b"\xc1", px=60_000)
        status = await queue.status("mine")
        assert (status.state, status.has_result) == ("done", False)
        assert status.note.startswith("its result cannot be read: ")


class TestUnknown:
    @pytest.mark.parametrize("job_id", (OLD_ULID, "mine", 26 * "0", "7" + 25 * "Z"))
    async def test_a_job_without_a_trace_is_unknown(self, queue: Queue, job_id: str) -> None:
        await queue.add_bulk([{"name": "mail"}] * 50)
        status = await queue.status(job_id)
        assert status.state == "unknown"
        assert status.note.startswith("there is no trace of it")
        assert ("only at the ends" in status.note) == (job_id == "mine")

    async def test_a_queue_that_was_never_used_knows_nothing(self, queue: Queue) -> None:
        assert (await queue.status(OLD_ULID)).state == "unknown"

    @pytest.mark.parametrize("job_id", ("\ud800", 7))
    async def test_an_id_that_no_job_can_have_is_refused(self, queue: Queue, job_id: Any) -> None:
        with pytest.raises(InvalidArgument):
            await queue.status(job_id)

    async def test_bytes_of_others_do_not_matter(
        self, queue: Queue, witness: redis.asyncio.Redis, queue_name: str
    ) -> None:
        prefix = f"{{chasqui:{queue_name}}}"
        for key in ("stream", "dlq", "events"):
            for fields in ({"d": b"\xc1"}, {"x": "y"}, {"id": OLD_ULID, "e": "completed"}, {"d": OLD_ULID}):
                await witness.xadd(f"{prefix}:{key}", fields)
        await witness.set(f"{prefix}:unique:{OLD_ULID}", "0-7", px=60_000)
        await witness.set(f"{prefix}:didx:{OLD_ULID}", b"\xff", px=60_000)
        status = await queue.status(OLD_ULID)
        assert (status.state, status.attempt) == ("done", 0)
        for key in ("stream", "dlq", "events"):
            last = f"{2**64 - 1}-{2**64 - 1}"
            await witness.xadd(f"{prefix}:{key}", {"x": "y"}, id=last)
        assert (await queue.status(OLD_ULID)).state == "done"
        await witness.delete(f"{prefix}:stream")
        async with asyncio.timeout(40):
            job = await queue.add("mail")
            assert (await queue.status(job.id)).state == "waiting"
