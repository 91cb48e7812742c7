"""BullMQ for Python: `addBulk`, finished jobs removed at once. Handlers are coroutines only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from bullmq import Queue, Worker

from benchmarks.peers.roles import QUEUE, AsyncPeer, Order, Producer, sum_of

OPTIONS = {"removeOnComplete": True}


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    queue = Queue(QUEUE, {"connection": url})

    def add(data: dict[str, Any]) -> Any:
        return queue.add("bench", data, OPTIONS)

    def bulk(batch: list[dict[str, Any]]) -> Callable[[], Any]:
        return partial(queue.addBulk, [{"name": "bench", "data": data, "opts": OPTIONS} for data in batch])

    yield Producer(add, bulk)
    await queue.close()


async def work(order: Order, handler: Callable[..., Any]) -> None:
    async def process(job: Any, _token: str) -> None:
        await handler(job)

    options = {"connection": order.url, "concurrency": order.concurrency, "autorun": False}
    await Worker(QUEUE, process, options).run()


def data_of(job: Any) -> dict[str, Any]:
    return job.data


LEFT = sum_of(("LLEN", f"bull:{QUEUE}:wait"), ("LLEN", f"bull:{QUEUE}:active"))
PEER = AsyncPeer(producer, work, data_of, LEFT, uvloop=True)
