"""What every Python peer stands on, so that all of them are timed by the same lines.

A peer's file says three things: how to open a producer, how to run a worker, and how to ask Redis for the jobs that
are not finished yet. Everything that touches a clock is here. Standard library only: it runs in every peer's own
virtual environment.

The life of one measurement: `python -m benchmarks.peers PEER ACTION URL COUNT PARAMETERS` prints one line of JSON.
Actions: `add` times a producer, `fill` is the same without a warm-up, `work` times a worker on a filled queue,
`listen` and `send` are the two ends of the latency measurement.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from benchmarks.wire import Wire

QUEUE = "bench"
UP_KEY = "bench:worker-is-up"


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
    handler: str = "noop"  # noop, sleep, def or stamp
    concurrency: int = 100
    drain: bool = True  # wait until the last job is acked; False stops the clock at the last handler start
    gap_ms: tuple[float, float] = (2.0, 5.0)
    loop: str = "asyncio"

    @property
    def total(self) -> int:
        return self.warmup + self.count


@dataclass(frozen=True)
class Producer:
    """`add(data)` adds one job. `bulk(batch)` prepares a call that adds all of them the best way the peer has."""

    add: Callable[[dict[str, Any]], Any]
    bulk: Callable[[list[dict[str, Any]]], Callable[[], Any]]


@dataclass(frozen=True)
class AsyncPeer:
    """`unfinished` asks Redis for the jobs that are waiting, running or not acked; `data_of` finds the data among a
    handler's arguments."""

    producer: Callable[[str], AbstractAsyncContextManager[Producer]]
    work: Callable[[Order, Callable[..., Any]], Awaitable[None]]
    data_of: Callable[..., dict[str, Any]]
    unfinished: Callable[[Wire], int]
    uvloop: bool = False


@dataclass(frozen=True)
class ThreadPeer:
    """As AsyncPeer, for libraries that block: 100 callers are 100 threads, a sleeping handler sleeps in its thread."""

    producer: Callable[[str], AbstractContextManager[Producer]]
    work: Callable[[Order, Callable[..., Any]], None]
    data_of: Callable[..., dict[str, Any]]
    unfinished: Callable[[Wire], int]


def perform(peer: AsyncPeer | ThreadPeer, action: str, order: Order) -> None:
    """Run one action and print its result; working actions end the process themselves."""
    if isinstance(peer, ThreadPeer):
        result = _perform_threads(peer, action, order)
    elif peer.uvloop or order.loop == "uvloop":
        import uvloop

        result = uvloop.run(_perform_async(peer, action, order))
    else:
        result = asyncio.run(_perform_async(peer, action, order))
    print(json.dumps(result), flush=True)


def sum_of(*commands: tuple[str, ...]) -> Callable[[Wire], int]:
    """An `unfinished` for peers whose jobs are counted by plain commands."""
    return lambda wire: sum(wire.call(*command) for command in commands)


async def all_of(calls: list[Callable[[], Awaitable[Any]]], *, at_once: int = 50) -> None:
    """Every call, so many at a time: the best way to add many jobs with a library that has no bulk add."""
    waiting = iter(calls)

    async def caller() -> None:
        for call in waiting:
            await call()

    await asyncio.gather(*(caller() for _ in range(min(at_once, len(calls)))))


# --- producers -------------------------------------------------------------------------------------------------------


async def _perform_async(peer: AsyncPeer, action: str, order: Order) -> dict[str, Any]:
    if action in ("work", "listen"):
        handler = Meter(order, peer).async_handler(peer.data_of)
        await peer.work(order, handler)
        raise SystemExit("the worker stopped before the last job")
    async with peer.producer(order.url) as producer:
        if action == "send":
            return await _send_async(producer, order)
        await _add_async(producer, order, order.warmup)
        clock = Clock()
        await _add_async(producer, order, order.count)
        result = clock.read(order.count)
    with Wire(order.url) as wire:
        return result | {"waiting": peer.unfinished(wire)}


async def _add_async(producer: Producer, order: Order, count: int) -> None:
    add, data = producer.add, order.data
    if order.style == "single":
        for _ in range(count):
            await add(data)
    elif order.style == "tasks":

        async def caller(times: int) -> None:
            for _ in range(times):
                await add(data)

        await asyncio.gather(*(caller(times) for times in shares(count, order.tasks)))
    else:
        whole, rest = divmod(count, order.bulk)
        call = producer.bulk([data] * order.bulk)
        for _ in range(whole):
            await call()
        if rest:
            await producer.bulk([data] * rest)()


async def _send_async(producer: Producer, order: Order) -> dict[str, Any]:
    pauses = random.Random(1)
    await producer.add(stamped(order.data, 0))
    wait_for_worker(order.url)
    for seq in range(1, order.total):
        await asyncio.sleep(pauses.uniform(*order.gap_ms) / 1000)
        await producer.add(stamped(order.data, seq))
    return {"sent": order.total}


def _perform_threads(peer: ThreadPeer, action: str, order: Order) -> dict[str, Any]:
    if action in ("work", "listen"):
        peer.work(order, Meter(order, peer).plain_handler(peer.data_of))
        threading.Event().wait()  # some workers run in threads of their own; the meter ends the process
    with peer.producer(order.url) as producer:
        if action == "send":
            return _send_threads(producer, order)
        _add_threads(producer, order, order.warmup)
        clock = Clock()
        _add_threads(producer, order, order.count)
        result = clock.read(order.count)
    with Wire(order.url) as wire:
        return result | {"waiting": peer.unfinished(wire)}


def _add_threads(producer: Producer, order: Order, count: int) -> None:
    add, data = producer.add, order.data
    if order.style == "single":
        for _ in range(count):
            add(data)
    elif order.style == "tasks":

        def caller(times: int) -> None:
            for _ in range(times):
                add(data)

        with ThreadPoolExecutor(order.tasks) as threads:
            list(threads.map(caller, shares(count, order.tasks)))
    else:
        whole, rest = divmod(count, order.bulk)
        call = producer.bulk([data] * order.bulk)
        for _ in range(whole):
            call()
        if rest:
            producer.bulk([data] * rest)()


def _send_threads(producer: Producer, order: Order) -> dict[str, Any]:
    pauses = random.Random(1)
    producer.add(stamped(order.data, 0))
    wait_for_worker(order.url)
    for seq in range(1, order.total):
        time.sleep(pauses.uniform(*order.gap_ms) / 1000)
        producer.add(stamped(order.data, seq))
    return {"sent": order.total}


def shares(count: int, callers: int) -> list[int]:
    """`count` dealt out to that many callers, as evenly as it goes."""
    each, more = divmod(count, callers)
    return [each + 1] * more + [each] * (callers - more)


def stamped(data: dict[str, Any], seq: int) -> dict[str, Any]:
    """The data with the moment of its add. CLOCK_MONOTONIC is one clock for all processes of a Linux machine."""
    return data | {"seq": seq, "at_us": time.monotonic_ns() // 1000}


def wait_for_worker(url: str, *, timeout_s: float = 30.0) -> None:
    """Until the worker has run the first job, so that its start is no part of any latency."""
    deadline = time.monotonic() + timeout_s
    with Wire(url) as wire:
        while not wire.call("EXISTS", UP_KEY):
            if time.monotonic() > deadline:
                raise TimeoutError("the worker did not run the first job")
            time.sleep(0.01)


# --- workers ---------------------------------------------------------------------------------------------------------


class Meter:
    """Counts handler starts, from any thread. Its own thread sleeps until the last one, waits until everything is
    acked, prints the result and ends the process: how a worker stops is not measured."""

    def __init__(self, order: Order, peer: AsyncPeer | ThreadPeer) -> None:
        self._order, self._peer = order, peer
        self._count = itertools.count(1)  # next() on it is one step under the GIL
        self._first, self._last = max(1, order.warmup), order.total
        self._clock = Clock()
        self._seconds_to_last_start = 0.0
        self._over = threading.Event()
        self._latencies_us: list[int] = []
        threading.Thread(target=self._report, daemon=True).start()

    def hit(self) -> None:
        number = next(self._count)
        if number == self._first:
            self._clock = Clock()
        elif number == self._last:
            self._seconds_to_last_start = self._clock.seconds()
            self._over.set()

    def async_handler(self, data_of: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
        hit, stamp = self.hit, self._stamp

        async def noop(*_: Any, **__: Any) -> None:
            hit()

        async def sleep(*_: Any, **__: Any) -> None:
            hit()
            await asyncio.sleep(0.001)

        async def latency(*args: Any, **kwargs: Any) -> None:
            stamp(data_of(*args, **kwargs))

        plain = self.plain_handler(data_of)
        return {"noop": noop, "sleep": sleep, "stamp": latency, "def": plain}[self._order.handler]

    def plain_handler(self, data_of: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
        hit, stamp = self.hit, self._stamp

        def noop(*_: Any, **__: Any) -> None:
            hit()

        def sleep(*_: Any, **__: Any) -> None:
            hit()
            time.sleep(0.001)

        def latency(*args: Any, **kwargs: Any) -> None:
            stamp(data_of(*args, **kwargs))

        return {"noop": noop, "def": noop, "sleep": sleep, "stamp": latency}[self._order.handler]

    def _stamp(self, data: dict[str, Any]) -> None:
        now = time.monotonic_ns() // 1000
        if data["seq"] == 0:
            with Wire(self._order.url) as wire:
                wire.call("SET", UP_KEY, 1)
        elif data["seq"] >= self._order.warmup:
            self._latencies_us.append(now - data["at_us"])
        self.hit()

    def _report(self) -> NoReturn:
        self._over.wait()
        if self._order.drain:
            with Wire(self._order.url) as wire:
                while self._peer.unfinished(wire):
                    time.sleep(0.001)
        result = self._clock.read(self._last - self._first)
        result["seconds_to_last_start"] = self._seconds_to_last_start
        if not self._order.drain:
            result["seconds"] = self._seconds_to_last_start
        if self._latencies_us:
            result["latencies_us"] = sorted(self._latencies_us)
        # Not print(): Celery turns what is printed in a worker into log lines.
        os.write(1, json.dumps(result | memory()).encode() + b"\n")
        os._exit(0)


class Clock:
    """Wall time and the CPU time of this process since it was made."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._start = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def read(self, jobs: int) -> dict[str, Any]:
        seconds = self.seconds()
        return {"jobs": jobs, "seconds": seconds, "cpu_seconds": time.process_time() - self._cpu}


def memory() -> dict[str, float]:
    """Resident memory of this process in MB, now and at its highest."""
    with open("/proc/self/status", encoding="ascii") as lines:
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return {"rss_mb": int(fields["VmRSS"].split()[0]) / 1024, "peak_rss_mb": int(fields["VmHWM"].split()[0]) / 1024}
