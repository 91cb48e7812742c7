"""SAQ: finished jobs are not kept (`ttl=-1`) instead of for ten minutes; hiredis as its documentation advises.

Its `batch()` watches jobs for errors and sends them one by one. Many jobs are therefore added by concurrent calls,
and the limit of concurrent operations (20) is raised to what those calls use. Plain functions run in a pool of threads
that it sizes by the processor and that cannot be set. As it comes (`defaults`) it runs 10 jobs at once. A job has one
attempt unless more are asked for, so a job whose worker died does not run again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from saq import Job, Queue, Worker

from benchmarks.peers.roles import QUEUE, AsyncPeer, Order, Producer, all_of, sum_of


def new_queue(order: Order) -> Queue:
    options = {} if order.defaults else {"max_concurrent_ops": 100}
    return Queue.from_url(order.url, name=QUEUE, **options)


@asynccontextmanager
async def producer(order: Order) -> AsyncIterator[Producer]:
    queue = new_queue(order)
    options = {} if order.defaults or order.results else {"ttl": -1}

    async def add(data: dict[str, Any]) -> Any:
        return await queue.enqueue("bench", data=data, **options)

    async def result(job: Job) -> Any:
        await job.refresh(60)
        return job.result

    yield Producer(add, lambda batch: partial(all_of, [partial(add, data) for data in batch]), wait=result)
    await queue.disconnect()


async def work(order: Order, handler: Callable[..., Any]) -> None:
    options = {} if order.defaults else {"concurrency": order.concurrency}
    await Worker(new_queue(order), [("bench", handler)], **options).start()


def data_of(_context: object, *, data: dict[str, Any]) -> dict[str, Any]:
    return data


PEER = AsyncPeer(producer, work, data_of, sum_of(("ZCARD", f"saq:{QUEUE}:incomplete")), uvloop=True)
