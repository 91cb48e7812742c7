"""BullMQ for Python: `addBulk`, finished jobs removed at once. Handlers are coroutines only.

As it comes (`defaults`) it runs one job at a time and keeps finished jobs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from bullmq import Queue, Worker

from benchmarks.peers.roles import QUEUE, AsyncPeer, Order, Producer, sum_of


@asynccontextmanager
async def producer(order: Order) -> AsyncIterator[Producer]:
    queue = Queue(QUEUE, {"connection": order.url})
    options = {} if order.defaults else {"removeOnComplete": True}

    def add(data: dict[str, Any]) -> Any:
        return queue.add("bench", data, options)

    def bulk(batch: list[dict[str, Any]]) -> Callable[[], Any]:
        return partial(queue.addBulk, [{"name": "bench", "data": data, "opts": options} for data in batch])

    yield Producer(add, bulk)
    await queue.close()


async def work(order: Order, handler: Callable[..., Any]) -> None:
    async def process(job: Any, _token: str) -> None:
        await handler(job)

    options = {} if order.defaults else {"concurrency": order.concurrency}
    await Worker(QUEUE, process, {"connection": order.url, "autorun": False, **options}).run()


def data_of(job: Any) -> dict[str, Any]:
    return job.data


LEFT = sum_of(("LLEN", f"bull:{QUEUE}:wait"), ("LLEN", f"bull:{QUEUE}:active"))
PEER = AsyncPeer(producer, work, data_of, LEFT, uvloop=True)
