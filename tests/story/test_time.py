"""How jobs run later, once, and again and again: to be read from top to bottom, after how they are added and run.

Only public names are used. `redis_url` is the address of a Redis, `queue_name` a name that no other test uses.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from pychasqui import InvalidArgument, Job, Promoter, Queue, RepeatPattern, Scheduler, Worker, next_fires

pytestmark = pytest.mark.usefixtures("no_keys_left")


async def test_a_job_may_run_later(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, done.put, redis_url=redis_url):
        added = time.monotonic()
        await queue.add("remind", "in a tenth of a second", delay_ms=100)
        assert (await done.get()).data == "in a tenth of a second"
        assert time.monotonic() - added >= 0.1


async def test_a_delay_is_a_number_a_timedelta_or_a_time(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, done.put, redis_url=redis_url):
        await queue.add("remind", 3, delay_ms=datetime.now(UTC) + timedelta(milliseconds=450))
        await queue.add("remind", 2, delay=timedelta(milliseconds=300))
        await queue.add("remind", 1, delay_ms=150)
        await queue.add("remind", 0, delay_ms=datetime(2020, 1, 1, tzinfo=UTC))  # past: at once
        assert [(await done.get()).data for _ in range(4)] == [0, 1, 2, 3]


async def test_a_delay_that_looks_like_a_mistake_in_units_is_refused(redis_url: str, queue_name: str) -> None:
    async with Queue(queue_name, redis_url=redis_url) as queue:
        with pytest.raises(InvalidArgument, match="max_delay_secs"):
            await queue.add("remind", delay_ms=60 * 24 * 3600 * 1000)


async def test_a_job_that_waits_can_be_cancelled_moved_or_run_at_once(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, done.put, redis_url=redis_url):
        hour = timedelta(hours=1)
        cancelled, moved, hurried = [await queue.add("remind", number, delay=hour) for number in range(3)]
        assert await queue.cancel_delayed(cancelled.id)
        assert await queue.reschedule(moved.id, timedelta(milliseconds=200))
        assert await queue.run_now(hurried.id)
        assert [(await done.get()).data for _ in range(2)] == [2, 1]
        assert not await queue.cancel_delayed(hurried.id)  # it has run


async def test_an_id_has_one_job_until_that_job_is_done(redis_url: str, queue_name: str) -> None:
    may_end = asyncio.Event()
    started: asyncio.Queue[Job] = asyncio.Queue()

    async def charge(job: Job) -> None:
        await started.put(job)
        await may_end.wait()

    async with (
        Queue(queue_name, redis_url=redis_url) as shop,
        Queue(queue_name, redis_url=redis_url) as another_process,
        Worker(queue_name, charge, redis_url=redis_url),
    ):
        assert (await shop.add("charge", 1, job_id="order-17")).is_new
        assert not (await another_process.add("charge", 2, job_id="order-17")).is_new
        await started.get()
        assert not (await another_process.add("charge", 3, job_id="order-17", delay_ms=10)).is_new
        may_end.set()
        while not (await shop.add("charge", 4, job_id="order-17")).is_new:
            await asyncio.sleep(0.01)
        assert (await started.get()).data == 4


async def test_an_id_may_be_taken_for_a_time_instead(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, done.put, redis_url=redis_url):
        await queue.add("newsletter", job_id="ada", unique_for=timedelta(days=1))
        await done.get()
        assert not (await queue.add("newsletter", job_id="ada", unique_for=timedelta(days=1))).is_new


async def test_a_burst_of_adds_may_run_once_with_the_last_data(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, done.put, redis_url=redis_url):
        for revision in range(5):
            job = await queue.add("index", revision, job_id="page-7", delay_ms=200, if_exists="postpone")
            assert job.has_replaced == (revision > 0)
        assert (await done.get()).data == 4
    assert done.empty()


async def test_a_repeatable_adds_a_job_again_and_again(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, done.put, redis_url=redis_url):
        beat = await queue.repeatables.upsert("beat", {"n": 1}, repeat=RepeatPattern.every(100))
        jobs = [await done.get() for _ in range(3)]
        assert await queue.repeatables.remove(beat.key)
    assert {job.name for job in jobs} == {"beat"}
    times = [job.scheduled_at_ms for job in jobs]
    assert times == [beat.next_fire_ms, beat.next_fire_ms + 100, beat.next_fire_ms + 200]


async def test_a_repeatable_may_follow_the_wall_clock_of_a_place(redis_url: str, queue_name: str) -> None:
    nine_in_berlin = RepeatPattern.cron("0 9 * * *", tz="Europe/Berlin")
    async with Queue(queue_name, redis_url=redis_url) as queue:
        report = await queue.repeatables.upsert("report", repeat=nine_in_berlin)
        assert await queue.repeatables.next_fires(report.key, 3) == next_fires(
            nine_in_berlin, 3, report.next_fire_ms - 1
        )
        assert await queue.repeatables.remove(report.key)


async def test_a_repeatable_may_end_be_paused_and_be_fired_by_hand(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, done.put, redis_url=redis_url):
        await queue.repeatables.upsert("twice", repeat=RepeatPattern.every(50), limit=2)
        nightly = await queue.repeatables.upsert("nightly", repeat=RepeatPattern.cron("@daily"))
        assert await queue.repeatables.pause(nightly.key)
        await queue.fire_now(nightly.key)
        assert sorted([(await done.get()).name for _ in range(3)]) == ["nightly", "twice", "twice"]
        assert [meta.key for meta in await queue.repeatables.page()] == [nightly.key]
        assert await queue.repeatables.remove(nightly.key)


async def test_promoting_and_firing_may_be_left_to_processes_of_their_own(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with (
        Queue(queue_name, redis_url=redis_url) as queue,
        Worker(queue_name, done.put, redis_url=redis_url, delayed_enabled=False, run_scheduler=False),
        Promoter(queue_name, redis_url=redis_url),
        Scheduler(queue_name, redis_url=redis_url),
    ):
        await queue.add("later", delay_ms=50)
        await queue.repeatables.upsert("beat", repeat=RepeatPattern.every(50), limit=1)
        assert {(await done.get()).name for _ in range(2)} == {"later", "beat"}
