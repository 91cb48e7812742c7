"""Both kinds in one group: they share jobs, take over from dead workers, and leave running jobs alone."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial

import pytest
import redis.asyncio

from pychasqui import Job, Queue, Worker
from tests.interop.official import Official
from tests.interop.runs import Handler
from tests.interop.wire import Wire, nothing_left
from tests.support.programs import start_program
from tests.support.server import RedisServer
from tests.support.waiting import eventually

FOREVER = 3600.0


async def has_run(official: Official, job_id: str) -> bool:
    return job_id in official.ended


async def test_a_thousand_jobs_of_both_are_run_once_each_by_both(
    official: Official, queue: Queue, redis_url: str, queue_name: str
) -> None:
    handler = Handler(lasts_s=0.01)
    await official.work(lasts_s=0.01, concurrency=20)
    async with Worker(queue_name, handler, redis_url=redis_url, concurrency=20):
        jobs = [{"name": "shared", "data": n} for n in range(500)]
        theirs, ours = await asyncio.gather(official.add_bulk(jobs), queue.add_bulk(jobs))
        await eventually(lambda: len(handler.ended) + len(official.ended) >= 1000)
    runs = Counter(run.id for run in handler.runs + official.runs)
    assert runs == Counter([*theirs, *(job.id for job in ours)])
    assert len(handler.runs) >= 100
    assert len(official.runs) >= 100


class TestLongJobs:
    async def test_official_workers_do_not_take_a_job_that_still_runs_here(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        handler = Handler(lasts_s=4.0)
        async with Worker(queue_name, handler, redis_url=redis_url, claim_min_idle_ms=1000):
            job = await queue.add("long")
            await eventually(lambda: handler.runs)
            await official.work(claim_min_idle_ms=1000, read_block_ms=100)
            await eventually(lambda: handler.ended == [job.id])
        assert len(handler.runs) == 1
        assert official.runs == []

    async def test_official_workers_do_not_take_a_job_that_blocks_our_event_loop(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs = []
        they_read = asyncio.Event()

        async def block(job: Job) -> None:
            runs.append(job.id)
            await they_read.wait()
            time.sleep(4)

        async with Worker(queue_name, block, redis_url=redis_url, claim_min_idle_ms=1000):
            job = await queue.add("long")
            await eventually(lambda: runs)
            await official.work(claim_min_idle_ms=1000, read_block_ms=100)
            they_read.set()
        assert runs == [job.id]
        assert official.runs == []
        assert "has been blocked" in caplog.text

    async def test_our_workers_do_not_take_an_official_job_before_its_time(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        await official.work(lasts_s=1.5)
        job = await queue.add("long")
        await eventually(lambda: official.runs)
        handler = Handler()
        async with Worker(queue_name, handler, redis_url=redis_url, claim_min_idle_ms=2000):
            await eventually(lambda: official.ended == [job.id])
        assert len(official.runs) == 1
        assert handler.runs == []


class TestKilled:
    async def test_our_worker_takes_the_jobs_of_a_killed_official_worker_once_they_are_idle(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        await official.work(lasts_s=FOREVER, concurrency=10)
        jobs = await queue.add_bulk({"name": "n", "data": n} for n in range(30))
        await eventually(lambda: len(official.runs) == 10)
        handler = Handler()
        async with Worker(queue_name, handler, redis_url=redis_url, claim_min_idle_ms=1000):
            await official.kill()
            await eventually(lambda: len(handler.runs) == 30)
        assert {(run.id, run.attempt) for run in handler.runs} == {(job.id, 1) for job in jobs}
        delivered_at = min(run.at for run in official.runs)
        assert min(run.at for run in handler.runs) - delivered_at >= 0.95
        assert max(run.at for run in handler.runs) - delivered_at < 2.5

    async def test_an_official_worker_takes_the_jobs_of_our_killed_worker_once_they_are_idle(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        program = (
            "import asyncio; from pychasqui import Worker\n"
            "async def handle(job): await asyncio.sleep(3600)\n"
            f"asyncio.run(Worker({queue_name!r}, handle, redis_url={redis_url!r}, concurrency=10).run())\n"
        )
        worker = await start_program(program)
        jobs = await queue.add_bulk({"name": "n", "data": n} for n in range(10))

        async def held() -> bool:
            return await wire.waiting() == 10 and len(await wire.pending()) == 10

        try:
            await eventually(held)
        finally:
            await worker.end()
        killed_at = time.time()
        await official.work(claim_min_idle_ms=1000)
        await eventually(lambda: len(official.ended) == 10)
        assert {run.id for run in official.runs} == {job.id for job in jobs}
        assert max(run.at for run in official.runs) - killed_at < 2.5

    async def test_no_job_is_lost_when_an_official_worker_is_killed_under_load(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        handler = Handler(lasts_s=0.01)
        await official.work(lasts_s=0.01, concurrency=10)
        async with Worker(queue_name, handler, redis_url=redis_url, concurrency=50, claim_min_idle_ms=1000):
            jobs = await queue.add_bulk({"name": "n", "data": n} for n in range(1000))
            await eventually(lambda: len(official.ended) >= 50)
            await official.kill()
            await eventually(lambda: {*handler.ended, *official.ended} == {job.id for job in jobs}, timeout=40)
            await eventually(lambda: len(handler.ended) == len(handler.runs))
        runs = Counter(run.id for run in handler.runs)
        assert max(runs.values()) == 1
        assert runs.keys() & {run.id for run in official.runs} < {run.id for run in official.runs[-100:]}

    async def test_no_job_is_lost_when_redis_is_killed_under_load(self, can_run_both: None, queue_name: str) -> None:
        handler = Handler(lasts_s=0.01)
        with RedisServer("--appendonly", "yes", "--appendfsync", "always", tcp=True) as server:
            async with (
                redis.asyncio.Redis.from_url(server.url) as witness,
                Official(server, witness, queue_name) as official,
                Queue(queue_name, redis_url=server.url) as queue,
                Worker(queue_name, handler, redis_url=server.url, concurrency=10, claim_min_idle_ms=1000),
            ):
                await official.work(lasts_s=0.01, concurrency=10, claim_min_idle_ms=1000)
                jobs = await queue.add_bulk({"name": "n", "data": n} for n in range(500))
                await eventually(lambda: len(official.ended) >= 50 and len(handler.ended) >= 50)
                server.kill()
                server.start()
                await eventually(lambda: {*handler.ended, *official.ended} == {job.id for job in jobs}, timeout=20)
                await nothing_left(server)


class TestTakenName:
    async def test_an_official_worker_under_the_name_of_a_dead_worker_keeps_its_entries(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        program = (
            "import asyncio; from pychasqui import Worker\n"
            "async def handle(job): await asyncio.sleep(3600)\n"
            f"worker = Worker({queue_name!r}, handle, redis_url={redis_url!r}, consumer_id='pod-0', lease_ms=1000)\n"
            "asyncio.run(worker.run())\n"
        )
        worker = await start_program(program)
        try:
            await eventually(lambda: official._is_reading("pod-0"))
        finally:
            await worker.end()
        await asyncio.sleep(1.1)  # until its lease is over
        await official.work(consumer_id="pod-0", lasts_s=4.0, concurrency=50)
        jobs = await queue.add_bulk({"name": "n", "data": n} for n in range(50))
        await eventually(lambda: len(official.runs) == 50)
        handler = Handler()
        async with Worker(queue_name, handler, redis_url=redis_url, lease_ms=1000):
            await eventually(lambda: len(official.ended) == 50, timeout=40)
        assert handler.runs == []
        assert sorted(run.id for run in official.runs) == sorted(job.id for job in jobs)


class TestHandedBack:
    async def test_official_workers_run_the_unstarted_jobs_of_our_closed_worker_at_once(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        handler = Handler()
        async with Worker(queue_name, handler, redis_url=redis_url, concurrency=1):
            await queue.add_bulk({"name": "quick", "data": n} for n in range(2000))
            await eventually(lambda: len(handler.ended) > 200)
        released = await wire.waiting()
        assert released == 2000 - len(handler.ended)
        await official.work()
        began = time.monotonic()
        await eventually(lambda: len(official.ended) == released)
        assert time.monotonic() - began < 20  # what has not been released is taken after 30 s
        assert {run.attempt for run in official.runs} == {0}
        assert {run.id for run in official.runs}.isdisjoint(handler.ended)

    async def test_official_workers_run_a_job_at_once_that_our_worker_cancelled_at_its_deadline(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        handler = Handler(lasts_s=FOREVER)
        async with Worker(queue_name, handler, redis_url=redis_url, shutdown_deadline_s=0.1):
            job = await queue.add("endless", attempts=1)
            await eventually(lambda: handler.runs)
        await official.work()
        await eventually(lambda: official.runs, timeout=1)
        assert [(run.id, run.attempt) for run in official.runs] == [(job.id, 0)]

    async def test_a_worker_of_theirs_that_waits_already_finds_it_with_its_next_read(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        handler = Handler(lasts_s=FOREVER)
        async with Worker(queue_name, handler, redis_url=redis_url, shutdown_deadline_s=0.1):
            job = await queue.add("endless")
            await eventually(lambda: handler.runs)
            await official.work(read_block_ms=300)
        await eventually(lambda: official.runs, timeout=1)
        assert [(run.id, run.attempt) for run in official.runs] == [(job.id, 0)]


class TestObliterate:
    async def test_official_workers_read_on_when_everything_is_removed(self, official: Official, queue: Queue) -> None:
        await official.work(read_block_ms=5000)
        for number in range(3):
            job = await queue.add("n", number)
            await eventually(partial(has_run, official, job.id))
            await queue.obliterate()
