"""RQ: `enqueue_many` for bulk, results not kept, and a SimpleWorker, which spares it a fork for every job.

A worker runs one job at a time; RQ's way to more is more processes, which would serve every peer here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker

from benchmarks.peers.roles import QUEUE, Order, Producer, ThreadPeer, sum_of

FUNCTION = f"{__name__}.handle"
handler: Callable[..., Any] = print


def handle(data: dict[str, Any]) -> None:
    """Jobs name a function by its import path, so the handler of this run is looked up here."""
    handler(data)


@contextmanager
def producer(url: str) -> Iterator[Producer]:
    queue = Queue(QUEUE, connection=Redis.from_url(url))

    def add(data: dict[str, Any]) -> None:
        queue.enqueue(FUNCTION, data, result_ttl=0)

    def bulk(batch: list[dict[str, Any]]) -> Callable[[], Any]:
        return lambda: queue.enqueue_many([Queue.prepare_data(FUNCTION, (data,), result_ttl=0) for data in batch])

    yield Producer(add, bulk)


def work(order: Order, run: Callable[..., Any]) -> None:
    global handler
    handler = run
    connection = Redis.from_url(order.url)
    SimpleWorker([Queue(QUEUE, connection=connection)], connection=connection).work(logging_level="ERROR")


LEFT = sum_of(("LLEN", f"rq:queue:{QUEUE}"), ("ZCARD", f"rq:wip:{QUEUE}"))
PEER = ThreadPeer(producer, work, lambda data: data, LEFT)
