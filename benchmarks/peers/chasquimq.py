"""The official chasquimq wheel, by the same public classes as pychasqui.

Worker: events and results are off unless they are measured, and so are the promoter unless jobs are retried or delayed
and the scheduler unless repeatables are fired (each costs Redis commands), and 256 entries are read at a time as in the
project's own benchmark. On asyncio, as its documentation shows it. Its bulk add with options is one add after another,
so jobs with options are added by concurrent calls; how its promoter goes about it cannot be set from Python. It runs
no plain functions. As it comes (`defaults`) events, promoter and scheduler are on, and 100 jobs run at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from chasquimq import (  # type: ignore[import-not-found]
    MissedFiresPolicy,
    Queue,
    RepeatPattern,
    UnrecoverableError,
    Worker,
)

from benchmarks.payload import DELAYED, REPEAT, STREAM
from benchmarks.peers.roles import QUEUE, REPEAT_MS, AsyncPeer, Failures, Order, Producer, all_of, sum_of


@asynccontextmanager
async def producer(order: Order) -> AsyncIterator[Producer]:
    # The default cap of a million entries would trim the largest backlog measured here.
    cap = {} if order.defaults else {"max_stream_len": 10_000_000}
    async with Queue(QUEUE, redis_url=order.url, **cap) as queue:

        def bulk(batch: list[dict[str, Any]], **options: Any) -> Callable[[], Any]:
            if options:
                return partial(all_of, [partial(queue.add, "bench", data, **options) for data in batch])
            jobs = [{"name": order.name(number), "data": data} for number, data in enumerate(batch)]
            return partial(queue.add_bulk, jobs)

        def repeat(number: int, data: dict[str, Any]) -> Awaitable[Any]:
            pattern, once = RepeatPattern.every(REPEAT_MS), MissedFiresPolicy.fire_once()
            return queue.upsert_repeatable_job(f"bench-{number}", data, repeat=pattern, limit=1, missed_fires=once)

        yield Producer(partial(queue.add, "bench"), bulk, repeat, lambda job: job.wait_for_result(timeout=60))


async def work(order: Order, handler: Callable[..., Any]) -> None:
    options = {
        "concurrency": order.concurrency,
        "read_count": 256,
        "events_enabled": order.events,
        "store_results": order.results,
        "delayed_enabled": order.promotes or order.handler == "retry",
        "run_scheduler": order.schedules,
    }
    await Worker(QUEUE, handler, redis_url=order.url, **({} if order.defaults else options)).run()


PEER = AsyncPeer(
    producer,
    work,
    lambda job: job.data,
    sum_of(("XLEN", STREAM.decode()), ("ZCARD", DELAYED.decode()), ("ZCARD", REPEAT.decode())),
    failures=Failures(lambda job: job.attempt, UnrecoverableError),
)
