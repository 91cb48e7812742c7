"""arq: results not kept, and the queue looked at without a pause instead of every 500 ms, or it would mostly sleep.

It has no bulk add; many jobs are added by concurrent calls. Handlers are coroutines only. As it comes (`defaults`) it
runs 10 jobs at once, looks every 500 ms and keeps results for an hour.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.constants import default_queue_name
from arq.jobs import Job
from arq.worker import Worker, func

from benchmarks.peers.roles import AsyncPeer, Order, Producer, all_of, sum_of


@asynccontextmanager
async def producer(order: Order) -> AsyncIterator[Producer]:
    pool = await create_pool(RedisSettings.from_dsn(order.url))
    add = partial(pool.enqueue_job, "bench")
    yield Producer(add, lambda batch: partial(all_of, [partial(add, data) for data in batch]), wait=result)
    await pool.aclose()


async def result(job: Job) -> Any:
    return await job.result(timeout=60, poll_delay=0)


async def work(order: Order, handler: Callable[..., Any]) -> None:
    kept = {} if order.defaults else {"keep_result": 60 if order.results else 0}
    options = {} if order.defaults else {"max_jobs": order.concurrency, "poll_delay": 0, "log_results": False}
    function, settings = func(handler, name="bench", **kept), RedisSettings.from_dsn(order.url)
    await Worker([function], redis_settings=settings, handle_signals=False, **options).async_run()


def data_of(_context: object, data: dict[str, Any]) -> dict[str, Any]:
    return data


PEER = AsyncPeer(producer, work, data_of, sum_of(("ZCARD", default_queue_name)), uvloop=True)
