"""The clocks of a worker: they run from the end of the warm-up until Redis says that the last job is acked."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from benchmarks.peers.roles import UP_KEY, AsyncPeer, Order, ThreadPeer
from benchmarks.wire import Wire


class Meter:
    """Counts handler starts, from any thread. Its own thread sleeps until the last one, waits until everything is
    acked, prints the result and ends the process: how a worker stops is not measured."""

    def __init__(self, order: Order, peer: AsyncPeer | ThreadPeer) -> None:
        self._order, self._peer = order, peer
        self._count = itertools.count(1)  # next() on it is one step under the GIL
        self._first, self._last = max(1, order.warmup), order.total
        if order.handler == "retry":
            self._last += order.count
        self._jobs = order.total - self._first
        self._clock = Clock()
        self._seconds_to_last_start = 0.0
        self._over = threading.Event()
        self._latencies_us: list[int] = []
        threading.Thread(target=self._report, daemon=True).start()

    def hit(self) -> int:
        number = next(self._count)
        if number == self._first:
            self._clock = Clock()
        elif number == self._last:
            self._seconds_to_last_start = self._clock.seconds()
            self._over.set()
        return number

    def async_handler(self, data_of: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
        hit, stamp = self.hit, self._stamp

        async def noop(*_: Any, **__: Any) -> None:
            hit()

        async def sleep(*_: Any, **__: Any) -> None:
            hit()
            await asyncio.sleep(0.001)

        async def latency(*args: Any, **kwargs: Any) -> None:
            stamp(data_of(*args, **kwargs))

        async def end(*args: Any, **kwargs: Any) -> int:
            await asyncio.sleep(data_of(*args, **kwargs)["for_ms"] / 1000)
            return time.monotonic_ns() // 1000

        if self._order.handler == "end":  # who waits for the results has the clock
            return end
        if self._order.handler in ("retry", "bury"):
            return self._failing_handler()
        data = self._order.data

        async def result(*_: Any, **__: Any) -> dict[str, Any]:
            hit()
            return data

        if self._order.handler == "result":
            return result
        plain = self.plain_handler(data_of)
        return {"noop": noop, "sleep": sleep, "stamp": latency, "def": plain}[self._order.handler]

    def _failing_handler(self) -> Callable[..., Any]:
        failures = self._peer.failures if isinstance(self._peer, AsyncPeer) else None
        assert failures, "this peer is not measured with jobs that fail"
        earlier_runs, final = failures.earlier_runs, failures.final
        hit, warmup = self.hit, self._order.warmup

        async def retry(*args: Any, **kwargs: Any) -> None:
            # Those of the warm-up succeed at once: their retries would come behind all others, into the timed part.
            if hit() > warmup and not earlier_runs(*args, **kwargs):
                raise LookupError("not yet")

        async def bury(*_: Any, **__: Any) -> None:
            hit()
            raise final("never")

        return retry if self._order.handler == "retry" else bury

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
        result = self._clock.read(self._jobs)
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
