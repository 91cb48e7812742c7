"""pychasqui as its users write it: one Queue, one Worker, nothing tuned but the concurrency.

Measured on asyncio and on uvloop; the order says which.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from benchmarks.payload import STREAM
from benchmarks.peers.roles import QUEUE, AsyncPeer, Order, Producer, sum_of
from pychasqui import Queue, Worker


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    async with Queue(QUEUE, redis_url=url) as queue:

        def bulk(batch: list[dict[str, Any]]) -> Callable[[], Any]:
            return partial(queue.add_bulk, [{"name": "bench", "data": data} for data in batch])

        yield Producer(partial(queue.add, "bench"), bulk)


async def work(order: Order, handler: Callable[..., Any]) -> None:
    await Worker(QUEUE, handler, redis_url=order.url, concurrency=order.concurrency).run()


# Jobs leave the stream when they are acked, so its length is everything that is not finished.
PEER = AsyncPeer(producer, work, lambda job: job.data, sum_of(("XLEN", STREAM.decode())))
