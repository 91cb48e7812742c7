"""How jobs are added and run: to be read from top to bottom, by a reader who has never seen pychasqui.

Only public names are used. `redis_url` is the address of a Redis, `queue_name` a name that no other test uses.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from pychasqui import (
    Closed,
    ConnectionLost,
    InvalidArgument,
    Job,
    PayloadTooLarge,
    Queue,
    QueueFull,
    UnsupportedData,
    Worker,
)

pytestmark = pytest.mark.usefixtures("no_keys_left")


async def test_a_job_is_added_to_a_queue_and_run_by_a_worker(redis_url: str, queue_name: str) -> None:
    greeted: asyncio.Queue[str] = asyncio.Queue()

    async def greet(job: Job) -> None:
        await greeted.put(f"Hello {job.data['name']}!")

    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, greet, redis_url=redis_url):
        await queue.add("greet", {"name": "Ada"})
        assert await greeted.get() == "Hello Ada!"


async def test_a_job_has_an_id_a_name_and_data(redis_url: str, queue_name: str) -> None:
    seen: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, seen.put, redis_url=redis_url):
        added = await queue.add("resize", {"width": 640, "tags": ["a", "b"], "raw": b"\x00\xff"})
        job = await seen.get()
    assert job.id == added.id
    assert job.name == "resize"
    assert job.data == {"width": 640, "tags": ["a", "b"], "raw": b"\x00\xff"}
    assert job.attempt == 0


async def test_a_handler_recognizes_jobs_by_their_names(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[str] = asyncio.Queue()

    async def handle(job: Job) -> None:
        match job.name:
            case "email":
                await done.put(f"mail to {job.data}")
            case "text":
                await done.put(f"text to {job.data}")

    async with (
        Queue(queue_name, redis_url=redis_url) as queue,
        Worker(queue_name, handle, redis_url=redis_url, concurrency=1),
    ):
        await queue.add("email", "ada@example.org")
        await queue.add("text", "+1 555 0100")
        assert [await done.get(), await done.get()] == ["mail to ada@example.org", "text to +1 555 0100"]


async def test_jobs_may_be_added_before_any_worker_exists(redis_url: str, queue_name: str) -> None:
    async with Queue(queue_name, redis_url=redis_url) as queue:
        await queue.add("early", 1)
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Worker(queue_name, done.put, redis_url=redis_url):
        assert (await done.get()).data == 1


async def test_a_bulk_of_jobs_is_added_in_one_call(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, done.put, redis_url=redis_url):
        jobs = await queue.add_bulk({"name": "count", "data": number} for number in range(1000))
        ran = [await done.get() for _ in jobs]
    assert sorted(job.data for job in ran) == list(range(1000))


async def test_a_handler_may_be_a_plain_function_which_then_runs_in_a_thread(redis_url: str, queue_name: str) -> None:
    loop = asyncio.get_running_loop()
    done: asyncio.Queue[str] = asyncio.Queue()

    def handle(job: Job) -> None:
        time.sleep(0.01)  # the event loop does not notice
        loop.call_soon_threadsafe(done.put_nowait, job.data)

    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, handle, redis_url=redis_url):
        await queue.add("compute", "done in a thread")
        assert await done.get() == "done in a thread"


async def test_a_worker_runs_as_many_handlers_at_once_as_it_is_allowed(redis_url: str, queue_name: str) -> None:
    all_are_here = asyncio.Barrier(5)
    done: asyncio.Queue[int] = asyncio.Queue()

    async def handle(job: Job) -> None:
        await all_are_here.wait()
        await done.put(job.data)

    async with (
        Queue(queue_name, redis_url=redis_url) as queue,
        Worker(queue_name, handle, redis_url=redis_url, concurrency=5),
    ):
        await queue.add_bulk({"name": "meet", "data": number} for number in range(5))
        assert {await done.get() for _ in range(5)} == {0, 1, 2, 3, 4}


async def test_jobs_run_in_the_order_they_were_added_with_a_concurrency_of_one(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with (
        Queue(queue_name, redis_url=redis_url) as queue,
        Worker(queue_name, done.put, redis_url=redis_url, concurrency=1),
    ):
        for number in range(10):
            await queue.add("count", number)
        assert [(await done.get()).data for _ in range(10)] == list(range(10))


async def test_workers_share_the_jobs_of_a_queue(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with (
        Queue(queue_name, redis_url=redis_url) as queue,
        Worker(queue_name, done.put, redis_url=redis_url),
        Worker(queue_name, done.put, redis_url=redis_url),
    ):
        await queue.add_bulk({"name": "count", "data": number} for number in range(100))
        ran = [(await done.get()).data for _ in range(100)]
    assert sorted(ran) == list(range(100))
    assert done.empty()


async def test_running_jobs_finish_at_the_end_of_a_workers_block(redis_url: str, queue_name: str) -> None:
    started, finished = asyncio.Event(), asyncio.Event()

    async def handle(job: Job) -> None:
        started.set()
        await asyncio.sleep(0.1)
        finished.set()

    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, handle, redis_url=redis_url):
        await queue.add("slow")
        await started.wait()
    assert finished.is_set()


async def test_a_program_that_only_works_runs_its_worker_until_it_is_closed(redis_url: str, queue_name: str) -> None:
    """With run(handle_signals=True) SIGINT and SIGTERM close it too."""

    async def handle(job: Job) -> None:
        await worker.close()

    worker = Worker(queue_name, handle, redis_url=redis_url)
    async with Queue(queue_name, redis_url=redis_url) as queue:
        await queue.add("the last one")
    await worker.run()
    assert worker.is_closed


async def test_a_job_may_bring_its_own_id(redis_url: str, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, done.put, redis_url=redis_url):
        await queue.add("charge", job_id="order-17")
        assert (await done.get()).id == "order-17"


async def test_data_that_cannot_be_stored_is_refused_before_anything_is_sent(redis_url: str, queue_name: str) -> None:
    async with Queue(queue_name, redis_url=redis_url, max_payload_bytes=1000) as queue:
        with pytest.raises(UnsupportedData, match=r"data\['items'\]\[1\] is a set"):
            await queue.add("send", {"items": [1, {2, 3}]})
        with pytest.raises(PayloadTooLarge, match="1000"):
            await queue.add("send", "x" * 2000)
        with pytest.raises(InvalidArgument, match="job 1 of the bulk: job_id"):
            await queue.add_bulk([{"name": "good", "data": 1}, {"name": "bad", "data": 2, "job_id": " "}])


async def test_a_queue_may_be_bounded_and_then_refuses_instead_of_forgetting(redis_url: str, queue_name: str) -> None:
    async with Queue(queue_name, redis_url=redis_url, max_stream_len=2) as queue:
        await queue.add("first")
        await queue.add("second")
        with pytest.raises(QueueFull):
            await queue.add("third")
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Worker(queue_name, done.put, redis_url=redis_url, concurrency=1):
        assert [(await done.get()).name for _ in range(2)] == ["first", "second"]


async def test_an_add_never_hangs(queue_name: str) -> None:
    async with Queue(queue_name, redis_url="unix:///nowhere/redis.sock", timeout_s=0.2) as queue:
        with pytest.raises(ConnectionLost):
            await queue.add("send")


async def test_a_closed_queue_says_that_it_is_closed(redis_url: str, queue_name: str) -> None:
    queue = Queue(queue_name, redis_url=redis_url)
    await queue.close()
    with pytest.raises(Closed):
        await queue.add("send")
