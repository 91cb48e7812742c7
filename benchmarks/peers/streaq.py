"""streaq: `enqueue_many` for bulk, results not kept (`ttl=0`), its log lines for each task off, on uvloop.

Plain functions run in threads (`sync_concurrency`). As it comes (`defaults`) it runs 16 jobs at once and keeps results
for five minutes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from streaq import Worker

from benchmarks.peers.roles import QUEUE, AsyncPeer, Order, Producer, sum_of


def new_worker(order: Order, handler: Callable[..., Any]) -> tuple[Worker[Any], Any]:
    options = {} if order.defaults else {"concurrency": order.concurrency, "handle_signals": False}
    worker: Worker[Any] = Worker(order.url, queue_name=QUEUE, **options)
    kept = {} if order.defaults or order.results else {"ttl": 0}
    quiet = {} if order.defaults else {"silent": True}
    return worker, worker.task(name="bench", **kept, **quiet)(handler)


@asynccontextmanager
async def producer(order: Order) -> AsyncIterator[Producer]:
    async def bench(data: dict[str, Any]) -> None:
        pass

    worker, task = new_worker(order, bench)

    async def add(data: dict[str, Any]) -> Any:
        return await task.enqueue(data)

    def bulk(batch: list[dict[str, Any]]) -> Callable[[], Any]:
        async def send() -> None:
            await worker.enqueue_many([task.enqueue(data) for data in batch])

        return send

    async def result(job: Any) -> Any:
        return (await job.result(timeout=60)).result

    async with worker:
        yield Producer(add, bulk, wait=result)


async def work(order: Order, handler: Callable[..., Any]) -> None:
    await new_worker(order, handler)[0].run_async()


# A message leaves the stream when it is acked.
PEER = AsyncPeer(producer, work, lambda data: data, sum_of(("XLEN", f"streaq:{QUEUE}:queues:normal")), uvloop=True)
