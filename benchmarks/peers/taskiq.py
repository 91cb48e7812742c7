"""taskiq on taskiq-redis' stream broker, the one with acks; no result backend, parameters not parsed (`--no-parse`).

The receiver runs in this process with the limits that `taskiq worker --workers 1 --max-async-tasks N` sets, on
uvloop as its command does. It has no bulk add; many jobs are added by concurrent calls. Plain functions run in
threads (`sync_workers`). As it comes (`defaults`) two processes run 100 jobs at once each, as its command starts them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from benchmarks.peers.roles import QUEUE, AsyncPeer, Order, Producer, all_of
from benchmarks.wire import Wire


def new_broker(order: Order) -> RedisStreamBroker:
    if order.defaults:
        return RedisStreamBroker(order.url, queue_name=QUEUE, consumer_id="0")
    return RedisStreamBroker(
        order.url, queue_name=QUEUE, consumer_id="0", max_connection_pool_size=150, xread_count=200
    )


@asynccontextmanager
async def producer(order: Order) -> AsyncIterator[Producer]:
    broker = new_broker(order)

    async def bench(data: dict[str, Any]) -> None:
        pass

    add = broker.register_task(bench, task_name="bench").kiq
    await broker.startup()
    yield Producer(add, lambda batch: partial(all_of, [partial(add, data) for data in batch]))
    await broker.shutdown()


async def work(order: Order, handler: Callable[..., Any]) -> None:
    broker = new_broker(order)
    broker.register_task(handler, task_name="bench")
    options = {"sync_workers": order.concurrency, "max_async_tasks": order.concurrency, "validate_params": False}
    if order.defaults:
        options = {"max_async_tasks": 100}  # what its command sets
    await run_receiver_task(broker, run_startup=True, **options)


def unfinished(wire: Wire) -> int:
    """Acked entries stay in its stream, so what counts is what the group has not read or not acked."""
    (group,) = wire.call("XINFO", "GROUPS", QUEUE)
    fields = dict(zip(group[::2], group[1::2], strict=True))
    return int(fields[b"pending"]) + int(fields[b"lag"])


PEER = AsyncPeer(producer, work, lambda data: data, unfinished, uvloop=True)
