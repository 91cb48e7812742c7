"""How to see what happens: to be read from top to bottom, after how jobs are added and run.

Only public names are used. `redis_url` is the address of a Redis, `queue_name` a name that no other test uses.
"""

from __future__ import annotations

import asyncio

import pytest

from pychasqui import Job, JobFailed, Queue, QueueEvent, QueueEvents, ResultNotStored, Worker

pytestmark = pytest.mark.usefixtures("no_keys_left")


async def test_a_handler_returns_a_result_and_the_producer_can_wait_for_it(redis_url: str, queue_name: str) -> None:
    async def double(job: Job) -> int:
        return 2 * int(job.data)

    async with (
        Queue(queue_name, redis_url=redis_url) as queue,
        Worker(queue_name, double, redis_url=redis_url, store_results=True, result_ttl_ms=60_000),
    ):
        job = await queue.add("double", 21)
        assert await job.wait_for_result(timeout=40) == 42
        assert await queue.get_job_result(job.id) == 42  # for a minute, by any process that knows the id

        jobs = await queue.add_bulk({"name": "double", "data": number} for number in range(10))
        assert await queue.wait_for_results(job.id for job in jobs) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]


async def test_a_dead_job_raises_its_error_in_its_waiters(redis_url: str, queue_name: str) -> None:
    async def charge(job: Job) -> None:
        raise ValueError("card is stolen")

    async with (
        Queue(queue_name, redis_url=redis_url) as queue,
        Worker(queue_name, charge, redis_url=redis_url, store_results=True),
    ):
        job = await queue.add("charge", attempts=2, backoff=1)
        with pytest.raises(JobFailed) as failure:
            await job.wait_for_result()
        assert (failure.value.error_type, failure.value.error) == ("ValueError", "card is stolen")
        assert (failure.value.reason, failure.value.attempts) == ("retries_exhausted", 2)
        assert await queue.purge("dead") == 1


async def test_waiting_ends_with_an_error_if_results_are_not_stored(redis_url: str, queue_name: str) -> None:
    async def send(job: Job) -> None:
        pass

    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, send, redis_url=redis_url):
        with pytest.raises(ResultNotStored):  # it is done; that is all there is to know
            await (await queue.add("send")).wait_for_result()


async def test_the_events_of_a_job_can_be_followed(redis_url: str, queue_name: str) -> None:
    async def send(job: Job) -> None:
        if job.attempt == 0:
            raise ConnectionError("away")

    async with (
        Queue(queue_name, redis_url=redis_url) as queue,
        QueueEvents(queue_name, redis_url=redis_url) as events,
        Worker(queue_name, send, redis_url=redis_url),
    ):
        job = await queue.add("send", backoff=1)
        seen: list[tuple[str, int | None]] = []
        async for event in events:
            if event.job_id == job.id:
                seen.append((event.name, event.fields.get("attempt")))
            if event.name == "completed":
                break
    assert seen == [
        ("active", 1),
        ("failed", 1),
        ("retry-scheduled", 2),
        ("waiting", None),
        ("active", 2),
        ("completed", 2),
    ]


async def test_a_subscriber_that_was_away_continues_where_it_stopped(redis_url: str, queue_name: str) -> None:
    async def send(job: Job) -> None:
        pass

    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, send, redis_url=redis_url):
        async with QueueEvents(queue_name, redis_url=redis_url, names=["completed"]) as events:
            first = await queue.add("send")
            seen = await anext(events)
            assert seen.job_id == first.id
        second = await queue.add("send")
        async with QueueEvents(
            queue_name, redis_url=redis_url, names=["completed"], last_event_id=seen.event_id
        ) as events:
            assert (await anext(events)).job_id == second.id


async def test_events_may_call_functions_instead(redis_url: str, queue_name: str) -> None:
    seen: list[str] = []
    events = QueueEvents(queue_name, redis_url=redis_url)

    async def on_completed(event: QueueEvent) -> None:
        seen.append(event.job_name)
        await events.close()

    async def send(job: Job) -> None:
        pass

    events.on("completed", on_completed)
    await events.start()  # nothing that happens from here on is missed
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, send, redis_url=redis_url):
        await queue.add("send")
        await events.run()
    assert seen == ["send"]


async def test_a_handler_reports_its_progress(redis_url: str, queue_name: str) -> None:
    async def copy(job: Job) -> None:
        job.progress(3, 4, "nearly there")
        job.log("copied three of four")

    async with (
        Queue(queue_name, redis_url=redis_url) as queue,
        Worker(queue_name, copy, redis_url=redis_url, store_results=True),
    ):
        job = await queue.add("copy")
        await job.wait_for_result()
        assert await queue.get_job_progress(job.id) == 75
        assert await queue.get_job_logs(job.id) == ["copied three of four"]


async def test_a_look_into_the_queue(redis_url: str, queue_name: str) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def hold(job: Job) -> None:
        started.set()
        await may_end.wait()

    async with Queue(queue_name, redis_url=redis_url) as queue:
        async with Worker(queue_name, hold, redis_url=redis_url, concurrency=1) as worker:
            running = await queue.add("hold", 1)
            await started.wait()
            later = await queue.add("hold", 2, delay_ms=60_000)

            counts = await queue.counts()
            assert (counts.waiting, counts.active, counts.delayed, counts.dead) == (0, 1, 1, 0)
            found = await queue.get_job(running.id)
            assert found is not None
            assert (found.state, found.worker) == ("active", worker.consumer_id)
            page = await queue.jobs("delayed", limit=10)
            assert [job.id for job in page.jobs] == [later.id]
            assert page.next is None  # no more
            assert [worker.concurrency for worker in await queue.workers()] == [1]
            may_end.set()
        assert await queue.purge("delayed") == 1


async def test_a_queue_may_be_paused(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, done.put, redis_url=redis_url):
        await queue.pause()
        await asyncio.sleep(0.1)
        await queue.add("send")  # producers notice nothing
        await asyncio.sleep(0.1)
        assert done.empty()
        await queue.resume()
        await done.get()
