"""What a peer's file is made of: the order it gets, the producer and the worker it gives, and what they may need.

Standard library only: it runs in every peer's own virtual environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.wire import Wire

QUEUE = "bench"
UP_KEY = "bench:worker-is-up"
WATCHED_KEY = "bench:watched"
REPEAT_MS = 2000


@dataclass(frozen=True)
class Order:
    """What to measure, as the command line says it."""

    url: str
    count: int
    warmup: int = 0
    data: dict[str, Any] = field(default_factory=dict)
    style: str = "single"  # single, tasks or bulk
    tasks: int = 100
    bulk: int = 1000
    options: dict[str, Any] = field(default_factory=dict)  # of every job that is added, besides its data
    names: int = 1  # by how many names the jobs of a bulk add go, in turn
    defaults: bool = False  # nothing is set but the server's address: the library as it comes
    form: str = "coroutine"  # or def: a plain function, in a thread
    handler: str = "noop"  # noop, sleep, stamp, end, result, retry or bury
    sleep_ms: float = 1.0
    concurrency: int = 100
    drain: bool = True  # wait until the last job is acked; False stops the clock at the last handler start
    gap_ms: tuple[float, float] = (2.0, 5.0)
    promotes: bool = False  # whether the worker has to promote delayed jobs
    schedules: bool = False  # or to fire repeatables
    rate: int = 0  # delayed jobs added a second, each by one of these delays; 0: none
    delays_ms: tuple[int, int] = (0, 0)
    events: bool = False  # whether the worker writes events
    results: bool = False  # or stores results
    metrics: bool = False  # or serves metrics
    traces: bool = False  # or makes spans
    spread_ms: int = 0  # within which time the jobs end that are waited for
    in_turn: bool = False  # each job is added when the result of the one before it is there
    lag: bool = False  # whether the lag of the worker's event loop is sampled
    loop: str = "asyncio"

    @property
    def total(self) -> int:
        return self.warmup + self.count

    def name(self, number: int) -> str:
        return f"bench-{number % self.names}" if self.names > 1 else "bench"


@dataclass(frozen=True)
class Producer:
    """`add(data)` adds one job. `bulk(batch)` prepares a call that adds all of them the best way the peer has. Peers
    whose failures or delayed jobs are measured take a job's options with it. `repeat(number, data)` stores a repeatable
    that is due in REPEAT_MS and fires once. `wait(job)` waits for the result of a job that `add` or `bulk` returned."""

    add: Callable[..., Any]
    bulk: Callable[..., Callable[[], Any]]
    repeat: Callable[[int, dict[str, Any]], Awaitable[Any]] | None = None
    wait: Callable[[Any], Awaitable[Any]] | None = None


@dataclass(frozen=True)
class Failures:
    """`earlier_runs` finds among a handler's arguments how often the job has failed; `final` is the error that buries
    a job at once."""

    earlier_runs: Callable[..., int]
    final: type[Exception]


@dataclass(frozen=True)
class AsyncPeer:
    """`unfinished` asks Redis for the jobs that are waiting, running or not acked; `data_of` finds the data among a
    handler's arguments. `failures` is there where failing jobs are measured."""

    producer: Callable[[Order], AbstractAsyncContextManager[Producer]]
    work: Callable[[Order, Callable[..., Any]], Awaitable[None]]
    data_of: Callable[..., dict[str, Any]]
    unfinished: Callable[[Wire], int]
    uvloop: bool = False  # where nothing but the peer's best is asked for
    failures: Failures | None = None


@dataclass(frozen=True)
class ThreadPeer:
    """As AsyncPeer, for libraries that block: 100 callers are 100 threads, a sleeping handler sleeps in its thread."""

    producer: Callable[[Order], AbstractContextManager[Producer]]
    work: Callable[[Order, Callable[..., Any]], None]
    data_of: Callable[..., dict[str, Any]]
    unfinished: Callable[[Wire], int]


def sum_of(*commands: tuple[str, ...]) -> Callable[[Wire], int]:
    """An `unfinished` for peers whose jobs are counted by plain commands."""
    return lambda wire: sum(wire.call(*command) for command in commands)


async def all_of(calls: list[Callable[[], Awaitable[Any]]], *, at_once: int = 50) -> None:
    """Runs every call, `at_once` at a time: the best way to add many jobs with a library that has no bulk add."""
    waiting = iter(calls)

    async def caller() -> None:
        for call in waiting:
            await call()

    await asyncio.gather(*(caller() for _ in range(min(at_once, len(calls)))))
