"""Dramatiq with its default middleware, worker threads in this process as its command would start them.

Up to 1,000 messages are fetched ahead (`dramatiq_queue_prefetch`) instead of two a thread: nearly twice as fast with
100 threads, many times with one. How many threads are best depends on what the jobs do, so 1, 8 and 100 are measured
and the best of them counts. It has no bulk add; many jobs are enqueued one after another. As it comes (`defaults`) its
command starts a process for each core with 8 threads each: dramatiq_default.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112  its name, read when dramatiq is imported

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.roles import QUEUE, Order, Producer, ThreadPeer, sum_of


def new_actor(url: str, function: Callable[..., Any]) -> dramatiq.Actor:
    broker = RedisBroker(url=f"{url}?max_connections=200")
    return dramatiq.actor(function, actor_name="bench", queue_name=QUEUE, broker=broker)


@contextmanager
def producer(order: Order) -> Iterator[Producer]:
    actor = new_actor(order.url, lambda data: None)

    def bulk(batch: list[dict[str, Any]]) -> Callable[[], None]:
        def send() -> None:
            for data in batch:
                actor.send(data)

        return send

    yield Producer(actor.send, bulk)
    actor.broker.close()


def work(order: Order, handler: Callable[..., Any]) -> None:
    if order.defaults:
        del os.environ["dramatiq_queue_prefetch"]  # noqa: SIM112
        command = [sys.executable, "-m", "dramatiq", f"{__name__}_default:broker"]
        os.execve(sys.executable, command, {**os.environ, "BENCH_REDIS_URL": order.url})
    actor = new_actor(order.url, handler)
    dramatiq.Worker(actor.broker, worker_threads=order.concurrency).start()


# A message stays in this hash from its enqueue to its ack.
PEER = ThreadPeer(producer, work, lambda data: data, sum_of(("HLEN", f"dramatiq:{QUEUE}.msgs")))
