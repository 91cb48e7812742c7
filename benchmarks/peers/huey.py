"""huey: results off, blocking reads, worker threads in this process, no scheduler and no health check.

It has no bulk add, and no acks: a job leaves Redis when a worker takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from huey import RedisHuey
from huey.api import TaskWrapper

from benchmarks.peers.roles import QUEUE, Order, Producer, ThreadPeer, sum_of


def new_task(url: str, handler: Callable[..., Any]) -> TaskWrapper:
    """Jobs name a function by its module, so producer and worker both register this one."""

    def bench(data: dict[str, Any]) -> None:
        handler(data)

    return RedisHuey(QUEUE, url=f"{url}?max_connections=200", results=False, blocking=True).task()(bench)


@contextmanager
def producer(url: str) -> Iterator[Producer]:
    task = new_task(url, print)

    def bulk(batch: list[dict[str, Any]]) -> Callable[[], None]:
        def send() -> None:
            for data in batch:
                task(data)

        return send

    yield Producer(task, bulk)


def work(order: Order, handler: Callable[..., Any]) -> None:
    huey = new_task(order.url, handler).huey
    huey.create_consumer(workers=order.concurrency, periodic=False, check_worker_health=False).start()


PEER = ThreadPeer(producer, work, lambda data: data, sum_of(("LLEN", f"huey.redis.{QUEUE}")))
