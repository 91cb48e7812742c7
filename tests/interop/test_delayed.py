"""Delayed jobs, one job per id and repeatables, with both kinds on one queue.

An official process does not know all of our rules: an id that is still taken here is free there if the job is in
the stream. Its uniqueness keys last an hour past the delay, unless one of our workers runs the job.
Here, an id is free as soon as its job is gone, whichever process ran it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from pychasqui import Job, MissedFiresPolicy, Promoter, Queue, RepeatPattern, RetryPolicy, Scheduler, Worker
from tests.interop.official import Official
from tests.interop.runs import Handler, HandlerRun
from tests.interop.wire import Wire
from tests.support.waiting import eventually

LATER = 60_000
ULID = "01M7F91ME6X32YC9GXRB8FSV7H"
IDS = pytest.mark.parametrize("job_id", ("order-17", ULID))


@pytest.fixture
async def handler(redis_url: str) -> Handler:
    return Handler()


@pytest.fixture
def prefix(queue_name: str) -> str:
    return f"{{chasqui:{queue_name}}}"


@pytest.fixture
async def repeats(witness: Any, prefix: str) -> AsyncIterator[str]:
    """The key of the repeat set, which is emptied in the end."""
    yield f"{prefix}:repeat"
    for key in [key async for key in witness.scan_iter(f"{prefix}:repeat*", count=1000)]:
        await witness.delete(key)


class TestPromotion:
    async def test_an_official_worker_promotes_and_runs_what_is_delayed_here(
        self, official: Official, queue: Queue
    ) -> None:
        jobs = await queue.add_bulk(
            [
                {"name": "wörk", "data": {"n": b"1"}, "delay_ms": 300},
                {"name": "", "data": 2, "delay_ms": 300, "job_id": "order-17"},
                {"name": "third", "data": 3, "delay_ms": 300, "job_id": ULID, "if_exists": "replace"},
            ]
        )
        await official.work()
        await eventually(lambda: len(official.runs) == 3)
        assert sorted(official.runs, key=lambda run: run.data) == [
            HandlerRun("order-17", "", "2", 0),
            HandlerRun(ULID, "third", "3", 0),
            HandlerRun(jobs[0].id, "wörk", "{'n': b'1'}", 0),
        ]

    async def test_jobs_delayed_there_are_promoted_and_run_here(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, handler: Handler
    ) -> None:
        plain = await official.add("wörk", {"n": 1}, "delay_ms=300")
        named = await official.add("", 2, "delay_ms=300, job_id='order-17'")
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(lambda: len(handler.runs) == 2)
        assert sorted(handler.runs, key=lambda run: run.data) == [
            HandlerRun(named, "", "2", 0),
            HandlerRun(plain, "wörk", "{'n': 1}", 0),
        ]

    async def test_a_promoter_of_ours_works_for_official_workers(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        await official.work(delayed_enabled=False)
        ours = await queue.add("ours", delay_ms=100, job_id=ULID)
        theirs = await official.add("theirs", None, "delay_ms=100, job_id='order-17'")
        async with Promoter(queue_name, redis_url=redis_url):
            await eventually(lambda: len(official.runs) == 2)
        assert {run.id for run in official.runs} == {ours.id, theirs}

    async def test_both_kinds_promote_side_by_side_and_each_job_runs_once(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, handler: Handler
    ) -> None:
        await official.work()
        async with Worker(queue_name, handler, redis_url=redis_url):
            jobs = await queue.add_bulk({"name": "j", "data": n, "delay_ms": 100 + n} for n in range(200))
            theirs = [await official.add("j", n, f"delay_ms={100 + n}") for n in range(50)]
            await eventually(lambda: len(handler.runs) + len(official.runs) >= 250, timeout=40)
        ran = [run.id for run in (*handler.runs, *official.runs)]
        assert sorted(ran) == sorted([*(job.id for job in jobs), *theirs])


class TestCancel:
    async def test_the_official_cancel_works_on_ours(self, official: Official, queue: Queue, wire: Wire) -> None:
        """With and without an id of their own: each has an index here."""
        for job_id in (None, "order-17", ULID):
            job = await queue.add("later", delay_ms=LATER, job_id=job_id)
            assert await official.cancel_delayed(job.id)
            assert not await official.cancel_delayed(job.id)
            assert not await queue.cancel_delayed(job.id)
            assert await wire.members() == []
            assert (await queue.add("later", delay_ms=LATER, job_id=job.id)).is_new
            assert await queue.cancel_delayed(job.id)

    async def test_our_queue_moves_and_cancels_official_jobs_with_chosen_ids(
        self, official: Official, queue: Queue, wire: Wire
    ) -> None:
        for job_id in ("order-17", ULID):
            await official.add("later", 1, f"delay_ms={LATER}, job_id={job_id!r}")
            assert await queue.reschedule(job_id, 2 * LATER)
            assert LATER < (await wire.due_in_ms())[job_id] <= 2 * LATER + 1
            assert await queue.cancel_delayed(job_id)
            assert not await official.cancel_delayed(job_id)
            assert await wire.members() == []

    async def test_a_job_without_an_index_cannot_be_cancelled_and_is_promoted(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, handler: Handler
    ) -> None:
        job_id = await official.add("later", 1, "delay_ms=500")
        assert not await queue.cancel_delayed(job_id)
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(lambda: [run.id for run in handler.runs] == [job_id])

    async def test_a_job_of_theirs_can_be_run_at_once(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, handler: Handler
    ) -> None:
        await official.add("wörk", 1, f"delay_ms={LATER}, job_id='order-17'")
        assert await queue.run_now("order-17")
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(lambda: handler.runs == [HandlerRun("order-17", "wörk", "1", 0)])


class TestOneJob:
    @IDS
    async def test_a_delayed_job_of_theirs_is_seen_here(
        self, official: Official, queue: Queue, wire: Wire, job_id: str
    ) -> None:
        await official.add("later", 1, f"delay_ms={LATER}, job_id={job_id!r}")
        assert not (await queue.add("later", 2, delay_ms=LATER, job_id=job_id)).is_new
        assert not (await queue.add("later", 2, job_id=job_id)).is_new
        assert (await queue.add("later", 3, job_id=job_id, if_exists="replace")).has_replaced
        assert (len(await wire.members()), await wire.waiting()) == (1, 0)
        assert await queue.cancel_delayed(job_id)

    @IDS
    async def test_a_delayed_job_of_ours_is_seen_there(
        self, official: Official, queue: Queue, wire: Wire, job_id: str
    ) -> None:
        await queue.add("later", 1, delay_ms=LATER, job_id=job_id)
        await official.add("later", 2, f"delay_ms={LATER}, job_id={job_id!r}")
        assert (len(await wire.members()), await wire.waiting()) == (1, 0)
        await wire.clear()

    @IDS
    async def test_a_job_of_ours_in_the_stream_shuts_no_official_producer_out(
        self, official: Official, queue: Queue, wire: Wire, job_id: str
    ) -> None:
        await queue.add("now", 1, job_id=job_id)
        await official.work(delayed_enabled=False)
        await eventually(partial(has_run, official, 1))
        await official.add("later", 2, f"delay_ms={LATER}, job_id={job_id!r}")
        assert len(await wire.members()) == 1
        assert not (await queue.add("later", 3, job_id=job_id)).is_new
        assert await queue.cancel_delayed(job_id)

    @IDS
    async def test_an_official_job_that_ran_here_frees_its_id(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, handler: Handler, job_id: str
    ) -> None:
        """B2: there, the job's uniqueness key would keep the id for an hour."""
        await official.add("later", 1, f"delay_ms=50, job_id={job_id!r}")
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(lambda: len(handler.runs) == 1)

            async def is_free() -> bool:
                return (await queue.add("later", 2, job_id=job_id)).is_new

            await eventually(is_free)
            await eventually(lambda: len(handler.runs) == 2)

    @IDS
    @pytest.mark.parametrize("delay_ms", (0, 50))
    async def test_a_job_of_ours_that_ran_there_frees_its_id(
        self,
        official: Official,
        queue: Queue,
        redis_url: str,
        queue_name: str,
        wire: Wire,
        job_id: str,
        delay_ms: int,
    ) -> None:
        """The uniqueness key stays, but it says where the job was, and the job is no longer there."""
        await official.work(delayed_enabled=False)
        async with Promoter(queue_name, redis_url=redis_url):
            for number in range(2):
                assert (await queue.add("ours", number, job_id=job_id, delay_ms=delay_ms)).is_new
                await eventually(partial(has_run, official, number + 1))
                await eventually(partial(is_empty, wire))

    @IDS
    async def test_a_job_of_ours_that_was_promoted_and_run_there_frees_its_id_here(
        self, official: Official, queue: Queue, prefix: str, witness: Any, wire: Wire, job_id: str
    ) -> None:
        """No process of ours saw the end of the job; there, its uniqueness key keeps the id for another hour."""
        await official.work()
        for number in range(3):
            assert (await queue.add("ours", number, job_id=job_id, delay_ms=50)).is_new
            await eventually(partial(has_run, official, number + 1))
            await eventually(partial(is_empty, wire))
        assert 0 < await witness.pttl(f"{prefix}:dlid:{job_id}") <= 3_601_000

    @pytest.mark.parametrize("by_theirs", (True, False))
    async def test_hundreds_of_jobs_promoted_there_and_run_here_free_their_ids(
        self,
        official: Official,
        queue: Queue,
        redis_url: str,
        queue_name: str,
        handler: Handler,
        witness: Any,
        prefix: str,
        by_theirs: bool,
    ) -> None:
        """Also if one is done before the official promoter has removed its index, and if its id has 26 characters."""
        ids = [f"order-{number:0{width}}" for number in range(100) for width in (4, 20)]
        await official.work(lasts_s=0.0, concurrency=1)  # leads the promotion
        await eventually(lambda: witness.exists(f"{prefix}:promoter:lock"))
        async with Worker(queue_name, handler, redis_url=redis_url, delayed_enabled=False, concurrency=100):
            for job_id in ids:
                if by_theirs:
                    await official.add("later", 1, f"delay_ms=50, job_id={job_id!r}")
                else:
                    assert (await queue.add("later", 1, job_id=job_id, delay_ms=50)).is_new
            await eventually(lambda: len(handler.ended) + len(official.ended) >= 200, timeout=40)
            await eventually(partial(is_settled, witness, prefix))
            ran_here = {run.id for run in handler.runs}
            markers = [f"{prefix}:dlid:{job_id}" for job_id in ran_here]
            assert len(markers) >= 20
            assert await witness.exists(*markers) == 0
            again = await queue.add_bulk({"name": "again", "job_id": job_id} for job_id in ids)
            assert all(job.is_new for job in again)
            await eventually(lambda: len(handler.ended) + len(official.ended) >= 400, timeout=40)

    async def test_a_job_that_was_promoted_there_keeps_its_id_here_until_it_is_done(
        self, official: Official, queue: Queue, wire: Wire, prefix: str, witness: Any
    ) -> None:
        await official.work(lasts_s=1.0, concurrency=1)
        for job_id in ("order-17", "order-18"):
            await queue.add("ours", job_id=job_id, delay_ms=50)
        await eventually(partial(has_run, official, 1))
        assert await wire.members() == []
        for job_id in ("order-17", "order-18"):
            assert not (await queue.add("ours", job_id=job_id)).is_new
        await eventually(partial(has_run, official, 2))
        await eventually(partial(is_empty, wire))
        assert (await queue.add("ours", job_id="order-17")).is_new

    async def test_a_job_that_waits_for_its_retry_there_does_not_keep_its_id(
        self, official: Official, queue: Queue, wire: Wire
    ) -> None:
        """A limit: the entry is gone, and a job that an official worker reschedules cannot be found by its id."""
        await official.work(fails=[0])
        await queue.add("ours", 1, job_id="order-17", backoff=LATER)
        await eventually(partial(has_members, wire, 1))
        assert (await queue.add("ours", 2, job_id="order-17", delay_ms=LATER)).is_new
        await wire.clear()


async def has_run(those: Official | Handler, count: int) -> bool:
    return len(those.runs) >= count


async def is_empty(wire: Wire) -> bool:
    return await wire.waiting() == 0


async def has_members(wire: Wire, count: int) -> bool:
    return len(await wire.members()) == count


async def is_settled(witness: Any, prefix: str) -> bool:
    return bool(await witness.xlen(f"{prefix}:stream") == 0)


async def is_gone(witness: Any, key: str) -> bool:
    return not await witness.exists(key)


class TestRepeatables:
    async def test_the_official_scheduler_fires_ours(
        self, official: Official, queue: Queue, repeats: str, witness: Any
    ) -> None:
        """Each fire with the name and the data of the spec."""
        await queue.upsert_repeatable_job("wörk", {"n": b"1"}, repeat=RepeatPattern.every(1500), limit=2, attempts=3)
        await queue.upsert_repeatable_job("cron", [1, 2.5], repeat=RepeatPattern.cron("* * * * * *"), limit=1)
        assert {name for _, name in await official.repeatables()} == {"wörk", "cron"}
        await official.work(run_scheduler=True, scheduler_tick_ms=100)
        await eventually(lambda: len(official.runs) == 3, timeout=40)
        assert sorted((run.name, run.data) for run in official.runs) == [
            ("cron", "[1, 2.5]"),
            ("wörk", "{'n': b'1'}"),
            ("wörk", "{'n': b'1'}"),
        ]
        assert await queue.get_repeatable_jobs() == []

    async def test_official_repeatables_fire_here(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, handler: Handler, repeats: str
    ) -> None:
        await official.upsert("wörk", {"n": b"1"}, "repeat=RepeatPattern.every(50), limit=3")
        await official.upsert("cron", [1, 2.5], "repeat=RepeatPattern.cron('* * * * * *', tz='Europe/Berlin'), limit=1")
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(lambda: len(handler.runs) == 4)
        assert sorted((run.name, run.data) for run in handler.runs) == [
            ("cron", "[1, 2.5]"),
            *[("wörk", "{'n': b'1'}")] * 3,
        ]
        assert await official.repeatables() == []

    async def test_a_repeatable_that_was_paused_here_and_removed_there_is_forgotten(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, repeats: str, witness: Any
    ) -> None:
        job = await queue.upsert_repeatable_job("tick", repeat=RepeatPattern.every(LATER))
        assert await queue.repeatables.pause(job.id)
        await official.remove_repeatable(job.id)
        assert await queue.get_repeatable_jobs() == []
        assert await queue.repeatables.get(job.id) is None
        assert not await queue.repeatables.resume(job.id)
        async with Scheduler(queue_name, redis_url=redis_url):
            await eventually(partial(is_gone, witness, f"{repeats}:paused"))

    async def test_a_repeatable_that_was_paused_here_and_stored_there_fires(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, repeats: str, witness: Any
    ) -> None:
        job = await queue.upsert_repeatable_job("tick", repeat=RepeatPattern.every(LATER), attempts=3)
        assert await queue.repeatables.pause(job.id)
        await official.upsert("tick", "theirs", f"repeat=RepeatPattern.every({LATER})")
        (meta,) = await queue.get_repeatable_jobs()
        assert (meta.key, meta.is_paused) == (job.id, False)
        found = await queue.repeatables.get(job.id)
        assert found is not None
        assert (found.data, found.retry, found.meta) == ("theirs", None, meta)
        async with Scheduler(queue_name, redis_url=redis_url):
            await eventually(partial(is_gone, witness, f"{repeats}:paused"))
        assert await queue.get_repeatable_jobs() == [meta]
        assert await queue.repeatables.pause(job.id)
        (meta,) = await queue.get_repeatable_jobs()
        assert meta.is_paused

    async def test_our_override_does_not_outlive_its_spec(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, handler: Handler, repeats: str
    ) -> None:
        await queue.upsert_repeatable_job("tick", "ours", repeat=RepeatPattern.every(300), attempts=1)
        await official.upsert("tick", "theirs", "repeat=RepeatPattern.every(300), limit=1")
        attempts: list[int] = []

        async def fail_twice(job: Job) -> None:
            attempts.append(job.attempt)
            if job.attempt < 2:
                raise RuntimeError("again")

        async with Worker(queue_name, fail_twice, redis_url=redis_url, retry=RetryPolicy(initial_ms=1, jitter_ms=0)):
            await eventually(lambda: attempts == [0, 1, 2])

    async def test_an_official_worker_runs_what_our_scheduler_fires(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, repeats: str
    ) -> None:
        """Also what a fire carries beyond the official envelope: its retries and its scheduled time."""
        await queue.upsert_repeatable_job(
            "tick", {"n": 1}, repeat=RepeatPattern.every(50), limit=3, attempts=2, backoff=10
        )
        await official.work(fails=[0])
        async with Scheduler(queue_name, redis_url=redis_url):
            await eventually(lambda: len(official.runs) == 6)
        assert {run.data for run in official.runs} == {"{'n': 1}"}
        assert sorted(run.attempt for run in official.runs) == [0, 0, 0, 1, 1, 1]

    async def test_missed_fires_are_made_up_for_alike(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, witness: Any, repeats: str
    ) -> None:
        counts = []
        policy = MissedFiresPolicy.fire_all(3)
        for kind in ("official", "ours"):
            handler = Handler()
            job = await queue.upsert_repeatable_job("tick", repeat=RepeatPattern.every(60_000), missed_fires=policy)
            await witness.zadd(repeats, {job.id: int(time.time() * 1000) - 300_000})
            if kind == "official":
                await official.work(run_scheduler=True, scheduler_tick_ms=100)
                await eventually(partial(has_run, official, 3))
                await official.stop_working()
                counts.append(len(official.runs))
            else:
                async with Worker(queue_name, handler, redis_url=redis_url):
                    await eventually(partial(has_run, handler, 3))
                    await asyncio.sleep(0.2)
                counts.append(len(handler.runs))
            assert await queue.remove_repeatable_by_key(job.id)
        assert counts == [3, 3]

    async def test_both_schedulers_side_by_side_fire_each_window_once(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, handler: Handler, repeats: str
    ) -> None:
        await official.work(run_scheduler=True, scheduler_tick_ms=100)
        async with Worker(queue_name, handler, redis_url=redis_url):
            for number in range(10):
                await queue.upsert_repeatable_job("tick", number, repeat=RepeatPattern.every(500 + number), limit=3)
            await eventually(lambda: len(handler.runs) + len(official.runs) >= 30, timeout=40)
            await asyncio.sleep(0.7)  # long enough for one more
        data = [run.data for run in (*handler.runs, *official.runs)]
        assert sorted(data) == sorted(str(number) for number in range(10) for _ in range(3))

    async def test_each_kind_removes_repeatables_of_the_other_kind(
        self, official: Official, queue: Queue, repeats: str, witness: Any
    ) -> None:
        ours = await queue.upsert_repeatable_job("ours", repeat=RepeatPattern.every(LATER), attempts=3)
        theirs = await official.upsert("theirs", 1, "repeat=RepeatPattern.every(60_000)")
        assert await official.remove_repeatable(ours.id)
        assert await queue.remove_repeatable_by_key(theirs)
        assert not await queue.remove_repeatable_by_key(ours.id)
        assert [key async for key in witness.scan_iter(f"{repeats}*", count=1000)] == []

    async def test_a_paused_one_is_not_fired_there_either(self, official: Official, queue: Queue, repeats: str) -> None:
        job = await queue.upsert_repeatable_job("tick", repeat=RepeatPattern.every(1200))
        assert await queue.repeatables.pause(job.id)
        await official.work(run_scheduler=True, scheduler_tick_ms=100)
        await asyncio.sleep(1.5)
        assert official.runs == []
        assert await queue.remove_repeatable_by_key(job.id)
