"""pychasqui as its users write it: one Queue, one Worker, nothing tuned but the concurrency.

Measured on asyncio and on uvloop; the order says which.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from benchmarks.payload import DELAYED, STREAM
from benchmarks.peers.roles import QUEUE, AsyncPeer, Failures, Order, Producer, sum_of
from pychasqui import Queue, UnrecoverableError, Worker


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    async with Queue(QUEUE, redis_url=url) as queue:

        def bulk(batch: list[dict[str, Any]], **options: Any) -> Callable[[], Any]:
            return partial(queue.add_bulk, [{"name": "bench", "data": data, **options} for data in batch])

        yield Producer(partial(queue.add, "bench"), bulk)


async def work(order: Order, handler: Callable[..., Any]) -> None:
    await Worker(QUEUE, handler, redis_url=order.url, concurrency=order.concurrency).run()


# Jobs leave the stream when they are acked, so what is not finished is there or waits for its retry.
PEER = AsyncPeer(
    producer,
    work,
    lambda job: job.data,
    sum_of(("XLEN", STREAM.decode()), ("ZCARD", DELAYED.decode())),
    failures=Failures(lambda job: job.attempt, UnrecoverableError),
)
