"""huey: results off, blocking reads, worker threads in this process, no scheduler and no health check.

It has no bulk add, and no acks: a job leaves Redis when a worker takes it. Two workers and 100 are measured, and the
better of them counts. As it comes (`defaults`) it has one worker, a scheduler, and stores results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from huey import RedisHuey
from huey.api import TaskWrapper

from benchmarks.peers.roles import QUEUE, Order, Producer, ThreadPeer, sum_of


def new_task(order: Order, handler: Callable[..., Any]) -> TaskWrapper:
    """Jobs name a function by its module, so producer and worker both register this one."""

    def bench(data: dict[str, Any]) -> None:
        handler(data)

    if order.defaults:
        return RedisHuey(QUEUE, url=order.url).task()(bench)
    return RedisHuey(QUEUE, url=f"{order.url}?max_connections=200", results=False, blocking=True).task()(bench)


@contextmanager
def producer(order: Order) -> Iterator[Producer]:
    task = new_task(order, print)

    def bulk(batch: list[dict[str, Any]]) -> Callable[[], None]:
        def send() -> None:
            for data in batch:
                task(data)

        return send

    yield Producer(task, bulk)


def work(order: Order, handler: Callable[..., Any]) -> None:
    huey = new_task(order, handler).huey
    if order.defaults:
        huey.create_consumer().run()
    huey.create_consumer(workers=order.concurrency, periodic=False, check_worker_health=False).start()


PEER = ThreadPeer(producer, work, lambda data: data, sum_of(("LLEN", f"huey.redis.{QUEUE}")))
