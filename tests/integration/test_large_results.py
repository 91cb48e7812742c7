"""A result that Redis cannot take is given up; its job and all others are done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pychasqui import Job, Queue, ResultNotStored, Worker
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.waiting import eventually

LARGE = 2_000_000


async def handle(job: Job) -> bytes:
    return b"x" * job.data


@pytest.mark.parametrize("sizes", ([LARGE, 1, 2, 3], [1, 2, LARGE, 3], [LARGE, 1, LARGE]))
async def test_a_result_that_is_too_large_for_the_server_is_given_up_and_the_others_are_stored(
    queue_name: str, sizes: list[int]
) -> None:
    with RedisServer("--proto-max-bulk-len", "1mb") as server:
        async with (
            Queue(queue_name, redis_url=server.url) as queue,
            Worker(queue_name, handle, redis_url=server.url, store_results=True) as worker,
        ):
            for job in await queue.add_bulk({"name": "send", "data": size} for size in sizes):
                if job.data == LARGE:
                    with pytest.raises(ResultNotStored, match="the connection ends when it is sent"):
                        await job.wait_for_result(timeout=40)
                else:
                    assert await job.wait_for_result(timeout=40) == b"x" * job.data
            assert (await queue.counts()).active == 0
            assert worker.is_running


async def test_a_large_result_is_stored_after_an_outage(proxy: Proxy, queue: Queue) -> None:
    may_end = asyncio.Event()
    started: list[str] = []

    async def handle_later(job: Job) -> bytes:
        started.append(job.id)
        await may_end.wait()
        return b"x" * LARGE

    async with Worker(queue.name, handle_later, redis_url=proxy.url, store_results=True):
        job = await queue.add("send")
        await eventually(lambda: started)
        proxy.refuse()
        proxy.cut()
        may_end.set()
        await asyncio.sleep(1.5)
        proxy.admit()
        assert await job.wait_for_result(timeout=40) == b"x" * LARGE


async def test_a_result_beyond_the_bound_is_not_sent(
    queue: Queue, make_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pychasqui._worker.acker.MAX_RESULT_BYTES", 1000)
    async with make_worker(handle, store_results=True):
        job = await queue.add("send", 1000)
        with pytest.raises(ResultNotStored, match="it has 1003 bytes, and the most is 1000"):
            await job.wait_for_result(timeout=40)
