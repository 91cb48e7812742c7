"""Celery with the thread pool in one process: results off, gossip, mingle and heartbeats off, a large prefetch.

For tasks that do nothing the pool is not what limits it: threads, prefork with 2 or 4 children, gevent and solo all
came out at about 1,000 a second when this was chosen, gevent last. With a concurrency of 1 the solo pool runs the
task in the worker itself. It has no bulk add; many jobs go through one producer held open for all of them. It acks a
task before it runs. As it comes (`defaults`) it has a child process for each core, and no result backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery

from benchmarks.peers.roles import Order, Producer, ThreadPeer, sum_of


def new_app(order: Order) -> Celery:
    app = Celery("bench", broker=order.url)
    if order.defaults:
        return app
    app.conf.update(
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        worker_prefetch_multiplier=10,
        worker_enable_remote_control=False,
        broker_pool_limit=100,
    )
    return app


@contextmanager
def producer(order: Order) -> Iterator[Producer]:
    app = new_app(order)

    @app.task(name="bench")
    def task(data: dict[str, Any]) -> None:
        pass

    def bulk(batch: list[dict[str, Any]]) -> Callable[[], None]:
        def send() -> None:
            with app.producer_pool.acquire(block=True) as channel:
                for data in batch:
                    task.apply_async((data,), producer=channel)

        return send

    yield Producer(task.delay, bulk)
    app.close()


def work(order: Order, handler: Callable[..., Any]) -> None:
    app = new_app(order)
    app.task(handler, name="bench")
    if order.defaults:
        app.worker_main(["worker", "--loglevel=ERROR"])
    pool = "solo" if order.concurrency == 1 else "threads"
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
    app.worker_main(["worker", f"--pool={pool}", f"--concurrency={order.concurrency}", *quiet])


PEER = ThreadPeer(producer, work, lambda data: data, sum_of(("LLEN", "celery"), ("HLEN", "unacked")))
