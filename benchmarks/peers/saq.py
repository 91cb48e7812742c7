"""SAQ: finished jobs are kept for one second instead of ten minutes; hiredis as its documentation advises.

Its `batch()` watches jobs for errors and sends them one by one. Many jobs are therefore added by concurrent calls,
and the limit of concurrent operations (20) is raised to what those calls use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from saq import Queue, Worker

from benchmarks.peers.roles import QUEUE, AsyncPeer, Order, Producer, all_of, sum_of


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    queue = Queue.from_url(url, name=QUEUE, max_concurrent_ops=100)

    async def add(data: dict[str, Any]) -> None:
        await queue.enqueue("bench", data=data, ttl=1)

    yield Producer(add, lambda batch: partial(all_of, [partial(add, data) for data in batch]))
    await queue.disconnect()


async def work(order: Order, handler: Callable[..., Any]) -> None:
    queue = Queue.from_url(order.url, name=QUEUE, max_concurrent_ops=100)
    await Worker(queue, [("bench", handler)], concurrency=order.concurrency).start()


def data_of(_context: object, *, data: dict[str, Any]) -> dict[str, Any]:
    return data


PEER = AsyncPeer(producer, work, data_of, sum_of(("ZCARD", f"saq:{QUEUE}:incomplete")), uvloop=True)
