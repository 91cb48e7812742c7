"""arq: results not kept, and the queue looked at every millisecond instead of every 500, or it would mostly sleep.

It has no bulk add; many jobs are added by concurrent calls. Handlers are coroutines only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.constants import default_queue_name
from arq.worker import Worker, func

from benchmarks.peers.roles import AsyncPeer, Order, Producer, all_of, sum_of


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    pool = await create_pool(RedisSettings.from_dsn(url))
    add = partial(pool.enqueue_job, "bench")
    yield Producer(add, lambda batch: partial(all_of, [partial(add, data) for data in batch]))
    await pool.aclose()


async def work(order: Order, handler: Callable[..., Any]) -> None:
    worker = Worker(
        [func(handler, name="bench", keep_result=0)],
        redis_settings=RedisSettings.from_dsn(order.url),
        max_jobs=order.concurrency,
        poll_delay=0.001,
        handle_signals=False,
        log_results=False,
    )
    await worker.async_run()


def data_of(_context: object, data: dict[str, Any]) -> dict[str, Any]:
    return data


PEER = AsyncPeer(producer, work, data_of, sum_of(("ZCARD", default_queue_name)), uvloop=True)
