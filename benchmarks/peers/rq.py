"""RQ: `enqueue_many` for bulk, results not kept, and a SimpleWorker, which spares it a fork for every job.

A worker runs one job at a time; RQ's way to more is more processes, which would serve every peer here. A job whose
worker died is put among the failed ones and runs again only if retries were asked for. As it comes (`defaults`) it
forks for every job and keeps results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker, Worker

from benchmarks.peers.roles import QUEUE, Order, Producer, ThreadPeer, sum_of

FUNCTION = f"{__name__}.handle"
handler: Callable[..., Any] = print


def handle(data: dict[str, Any]) -> None:
    """Jobs name a function by its import path, so the handler of this run is looked up here."""
    handler(data)


@contextmanager
def producer(order: Order) -> Iterator[Producer]:
    queue = Queue(QUEUE, connection=Redis.from_url(order.url))
    options = {} if order.defaults else {"result_ttl": 0}

    def add(data: dict[str, Any]) -> None:
        queue.enqueue(FUNCTION, data, **options)

    def bulk(batch: list[dict[str, Any]]) -> Callable[[], Any]:
        return lambda: queue.enqueue_many([Queue.prepare_data(FUNCTION, (data,), **options) for data in batch])

    yield Producer(add, bulk)


def work(order: Order, run: Callable[..., Any]) -> None:
    global handler
    handler = run
    connection = Redis.from_url(order.url)
    kind = Worker if order.defaults else SimpleWorker
    kind([Queue(QUEUE, connection=connection)], connection=connection).work(logging_level="ERROR")


LEFT = sum_of(("LLEN", f"rq:queue:{QUEUE}"), ("ZCARD", f"rq:wip:{QUEUE}"))
PEER = ThreadPeer(producer, work, lambda data: data, LEFT)
