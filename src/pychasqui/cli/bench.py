"""`chasqui bench`: measures adding and working on the user's server for a few seconds, on a queue of its own.

One process adds and works, so the numbers are what one process gets from this server over this network: several
processes get more. Nothing is left out of a time: serializing, the network and the server are all in it.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from .. import __version__
from ..errors import RedisTrouble, ReplyError
from .loops import choose_loop
from .options import TIMEOUT_S, CommandContext, add_common_options
from .tables import Column
from .values import Kind

if TYPE_CHECKING:
    from ..job import Job
    from ..queue import Queue
    from ..worker import Worker

BULK = 1000
TASKS = 100
MAX_JOBS = 200_000  # in the queue, however fast the server is: it is the user's, and its memory has an end
COLUMNS = (
    Column("measure", "measure"),
    Column("jobs", "jobs", Kind.COUNT),
    Column("per_s", "a second", Kind.COUNT),
    Column("shown_p50", "median"),
    Column("shown_p99", "99 of 100 within"),
)


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0.05, 60),
    default=1.0,
    show_default=True,
    help="How long each of the five measures takes.",
)
@click.option(
    "--payload", "size", type=click.IntRange(0, 100_000), default=100, show_default=True, help="Bytes of a job's data."
)
@click.option(
    "--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Handlers at the same time."
)
@add_common_options
def bench(context: CommandContext, seconds: float, size: int, concurrency: int) -> None:
    """Measure how fast jobs go through your server.

    Adds jobs one by one, from 100 tasks and in bulks, runs them with handlers that do nothing, and takes the time from
    the add to the handler's call of jobs that come alone. It uses a queue of its own, which is removed afterwards.
    """
    loop = choose_loop("auto")
    context.run(_measure_and_print(context, seconds, size, concurrency, loop.name), loop_factory=loop.factory)


async def _measure_and_print(context: CommandContext, seconds: float, size: int, concurrency: int, loop: str) -> None:
    async with _open_private_queue_and_remove_it(context) as queue:
        await queue.is_paused()  # connects, which is in no time
        context.output.print_message_to_stderr(f"measuring on queue {queue.name} for about {5 * seconds:g} s")
        measures = Measures(queue, context.redis_url, seconds=seconds, data="x" * size, concurrency=concurrency)
        records = [
            await measures.measure_adding_one_by_one(),
            await measures.measure_adding_from_tasks(),
            await measures.measure_adding_in_bulks(),
            await measures.measure_running_added_jobs_then_purge(),
            await measures.measure_start_latency(),
        ]
    for record in records if not context.output.is_json else ():
        record |= {f"shown_{name}": _format_milliseconds(record[f"{name}_ms"]) for name in ("p50", "p99")}
    setup: dict[str, Any] = {"payload_bytes": size, "concurrency": concurrency, "loop": loop}
    versions = {"pychasqui": __version__, "python": platform.python_version()}
    context.output.print_table_or_json("measures", COLUMNS, records, **setup, **versions)


@asynccontextmanager
async def _open_private_queue_and_remove_it(context: CommandContext) -> AsyncIterator[Queue]:
    """A queue that nobody else uses; it is removed at the end, also after Ctrl-C."""
    from ..queue import Queue  # here and below, so that --help does not wait for the import

    name = f"chasqui-bench-{uuid4().hex[:12]}"
    async with Queue(name, redis_url=context.redis_url, timeout_s=TIMEOUT_S) as queue:
        try:
            yield queue
        finally:
            try:
                await queue.obliterate()
            except ReplyError as error:
                await queue.drain()
                context.output.print_message_to_stderr(
                    f"queue {name} is empty, but its keys cannot be removed: {error}"
                )
            except RedisTrouble as error:
                context.output.print_message_to_stderr(f"queue {name} could not be removed: {error}")


class Measures:
    """Each measure takes about `seconds`, and returns a record."""

    def __init__(self, queue: Queue, redis_url: str, *, seconds: float, data: str, concurrency: int) -> None:
        self._queue = queue
        self._redis_url = redis_url
        self._seconds = seconds
        self._data = data
        self._concurrency = concurrency
        self._added = 0

    async def measure_adding_one_by_one(self) -> dict[str, Any]:
        times, took_s = await self._time_calls_repeatedly(self._add_and_count_job)
        return _make_measure_fields("add, one by one", len(times), took_s, times)

    async def measure_adding_from_tasks(self) -> dict[str, Any]:
        repeated = await asyncio.gather(*(self._time_calls_repeatedly(self._add_and_count_job) for _ in range(TASKS)))
        times = [time_s for some, _ in repeated for time_s in some]
        return _make_measure_fields(
            f"add, from {TASKS} tasks", len(times), max(took_s for _, took_s in repeated), times
        )

    async def measure_adding_in_bulks(self) -> dict[str, Any]:
        jobs = [{"name": "bench", "data": self._data}] * BULK

        async def add_bulk() -> None:
            await self._queue.add_bulk(jobs)
            self._added += BULK

        times, took_s = await self._time_calls_repeatedly(add_bulk)
        return _make_measure_fields(f"add, in bulks of {BULK:,}", BULK * len(times), took_s)

    async def measure_running_added_jobs_then_purge(self) -> dict[str, Any]:
        """Runs what the other measures have added, until all is done or the time is up."""
        begun_at: list[float] = []
        is_over = asyncio.Event()

        async def handle(job: Job) -> None:
            begun_at.append(perf_counter())
            if len(begun_at) == self._added or begun_at[-1] - begun_at[0] > self._seconds:
                is_over.set()

        async with self._make_worker(handle):
            await is_over.wait()
            count, took_s = len(begun_at), begun_at[-1] - begun_at[0]
        await self._queue.purge("waiting")
        self._added = 0
        return _make_measure_fields(f"work, {self._concurrency} at a time", count - 1, took_s)

    async def measure_start_latency(self) -> dict[str, Any]:
        """From the add of a job to the call of its handler, each job alone."""
        begun = asyncio.Event()

        async def handle(job: Job) -> None:
            begun.set()

        async def add_and_wait() -> None:
            begun.clear()
            await self._queue.add("bench", self._data)
            await begun.wait()

        async with self._make_worker(handle):
            times, took_s = await self._time_calls_repeatedly(add_and_wait)
        return _make_measure_fields("add until its handler runs", len(times), took_s, times)

    def _make_worker(self, handler: Callable[[Job], Awaitable[None]]) -> Worker:
        from ..worker import Worker

        return Worker(self._queue.name, handler, redis_url=self._redis_url, concurrency=self._concurrency)

    async def _add_and_count_job(self) -> None:
        await self._queue.add("bench", self._data)
        self._added += 1

    async def _time_calls_repeatedly(self, call: Callable[[], Awaitable[None]]) -> tuple[list[float], float]:
        """Calls again and again for the time of a measure; returns the time of each call, and of all."""
        times: list[float] = []
        begun = at = perf_counter()
        while (at - begun < self._seconds and self._added < MAX_JOBS) or not times:
            await call()
            now = perf_counter()
            times.append(now - at)
            at = now
        return times, at - begun


def _make_measure_fields(measure: str, jobs: int, took_s: float, times: list[float] | None = None) -> dict[str, Any]:
    ordered = sorted(times or ())
    return {
        "measure": measure,
        "jobs": jobs,
        "per_s": round(jobs / max(took_s, 1e-9)),
        "p50_ms": _choose_percentile_ms(ordered, 0.5),
        "p99_ms": _choose_percentile_ms(ordered, 0.99),
    }


def _choose_percentile_ms(ordered_s: list[float], share: float) -> float | None:
    return round(1000 * ordered_s[int(share * (len(ordered_s) - 1))], 3) if ordered_s else None


def _format_milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} ms"
