"""A worker knows when there is nothing left to do, which is how a burst ends; and it can be made again with options."""

from __future__ import annotations

import asyncio

import pytest

from pychasqui import InMemorySink, Job, Queue, Worker
from pychasqui.errors import Closed
from tests.support.gate import Gate
from tests.support.waiting import eventually


async def test_a_worker_is_idle_once_waiting_and_due_jobs_are_done(queue: Queue, redis_url: str) -> None:
    done: list[str] = []

    async def handle(job: Job) -> None:
        await asyncio.sleep(0.01)
        done.append(job.name)

    await queue.add_bulk([{"name": "now"} for _ in range(30)])
    await queue.add("due", None, delay_ms=1)
    await queue.add("later", None, delay_ms=3_600_000)
    async with Worker(queue.name, handle, redis_url=redis_url, concurrency=5) as worker:
        await worker.wait_until_idle()
        assert sorted(set(done)) == ["due", "now"]
        assert len(done) == 31
    await queue.purge("delayed")


async def test_a_worker_with_a_running_job_is_not_idle(queue: Queue, redis_url: str) -> None:
    gate = Gate()
    await queue.add("slow")
    async with Worker(queue.name, gate, redis_url=redis_url) as worker:
        await eventually(lambda: gate.running == 1)
        idle = asyncio.ensure_future(worker.wait_until_idle())
        done, _ = await asyncio.wait({idle}, timeout=0.3)
        assert not done
        gate.opened.set()
        await idle


async def test_a_worker_of_a_paused_queue_is_idle(queue: Queue, redis_url: str) -> None:
    async def handle(job: Job) -> None:
        raise AssertionError("the queue is paused")

    await queue.pause()
    await queue.add("waits")
    async with Worker(queue.name, handle, redis_url=redis_url) as worker:
        await worker.wait_until_idle()
    await queue.purge("waiting")
    await queue.resume()


async def test_a_worker_with_other_options_keeps_the_rest(queue: Queue, redis_url: str) -> None:
    first, second = InMemorySink(), InMemorySink()

    async def handle(job: Job) -> None:
        pass

    worker = Worker(queue.name, handle, redis_url=redis_url, concurrency=3, consumer_id="me", metrics=first)
    other = worker.with_options(concurrency=7, metrics=[first, second])
    assert (other.concurrency, other.consumer_id, other.config.redis_url) == (7, "me", redis_url)
    assert worker.concurrency == 3
    async with other:
        await queue.add("job")
        await eventually(lambda: len(first.job_outcomes) == len(second.job_outcomes) == 1)


async def test_a_start_can_be_awaited_beside_the_run(queue: Queue, redis_url: str) -> None:
    async def handle(job: Job) -> None:
        pass

    worker = Worker(queue.name, handle, redis_url=redis_url)
    running = asyncio.ensure_future(worker.run())
    assert await worker.wait_until_started()
    assert worker.is_running
    worker.shutdown()
    await running
    with pytest.raises(Closed):
        await worker.wait_until_started()
