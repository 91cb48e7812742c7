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
        self._lags_us: list[tuple[int, int]] = []
        threading.Thread(target=self._report, daemon=True).start()

    def hit(self) -> int:
        number = next(self._count)
        if number == self._first:
            self._clock = Clock()
        elif number == self._last:
            self._seconds_to_last_start = self._clock.seconds()
            self._over.set()
        return number

    def handler(self) -> Callable[..., Any]:
        """What the peer's worker runs: a coroutine function, or a plain one where the peer or the order asks for it."""
        is_plain = isinstance(self._peer, ThreadPeer) or self._order.form == "def"
        known = self._plain_handlers() if is_plain else self._coroutines()
        return known[self._order.handler]

    def _coroutines(self) -> dict[str, Callable[..., Any]]:
        hit, stamp, data_of, data = self.hit, self._stamp, self._peer.data_of, self._order.data
        seconds = self._order.sleep_ms / 1000

        async def noop(*_: Any, **__: Any) -> None:
            hit()

        async def sleep(*_: Any, **__: Any) -> None:
            hit()
            await asyncio.sleep(seconds)

        async def latency(*args: Any, **kwargs: Any) -> None:
            stamp(data_of(*args, **kwargs))

        async def end(*args: Any, **kwargs: Any) -> int:
            await asyncio.sleep(data_of(*args, **kwargs)["for_ms"] / 1000)
            return time.monotonic_ns() // 1000  # the caller that waits for the results has the clock

        async def result(*_: Any, **__: Any) -> dict[str, Any]:
            hit()
            return data

        known = {"noop": noop, "sleep": sleep, "stamp": latency, "end": end, "result": result}
        return known | self._failing_handlers()

    def _failing_handlers(self) -> dict[str, Callable[..., Any]]:
        failures = self._peer.failures if isinstance(self._peer, AsyncPeer) else None
        if failures is None:  # this peer is not measured with jobs that fail
            return {}
        earlier_runs, final = failures.earlier_runs, failures.final
        hit, warmup = self.hit, self._order.warmup

        async def retry(*args: Any, **kwargs: Any) -> None:
            # Those of the warm-up succeed at once: their retries would come behind all others, into the timed part.
            if hit() > warmup and not earlier_runs(*args, **kwargs):
                raise LookupError("not yet")

        async def bury(*_: Any, **__: Any) -> None:
            hit()
            raise final("never")

        return {"retry": retry, "bury": bury}

    def _plain_handlers(self) -> dict[str, Callable[..., Any]]:
        hit, stamp, data_of = self.hit, self._stamp, self._peer.data_of
        seconds = self._order.sleep_ms / 1000

        def noop(*_: Any, **__: Any) -> None:
            hit()

        def sleep(*_: Any, **__: Any) -> None:
            hit()
            time.sleep(seconds)

        def latency(*args: Any, **kwargs: Any) -> None:
            stamp(data_of(*args, **kwargs))

        return {"noop": noop, "sleep": sleep, "stamp": latency}

    async def sample_lag(self) -> None:
        """How much later than asked for a timer of 1 ms fires in the worker's loop."""
        while True:
            asked_at = time.monotonic_ns()
            await asyncio.sleep(0.001)
            lag_us = max(0, (time.monotonic_ns() - asked_at) // 1000 - 1000)  # uvloop rounds its timers down
            self._lags_us.append((asked_at // 1000, lag_us))

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
        if self._order.lag:
            self._latencies_us = [lag for at_us, lag in self._lags_us if at_us >= result["from_us"]]
        if self._latencies_us:
            result["latencies_us"] = sorted(self._latencies_us)
        # Not print(): Celery turns what is printed in a worker into log lines.
        os.write(1, json.dumps(result | memory()).encode() + b"\n")
        os._exit(0)


class Clock:
    """Wall time and the CPU time of this process since it was made."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._start = time.monotonic()  # one clock for all processes of a machine

    def seconds(self) -> float:
        return time.monotonic() - self._start

    def read(self, jobs: int) -> dict[str, Any]:
        seconds = self.seconds()
        cpu_seconds = time.process_time() - self._cpu
        return {"jobs": jobs, "seconds": seconds, "cpu_seconds": cpu_seconds, "from_us": int(self._start * 1e6)}


def memory() -> dict[str, float]:
    """Resident memory of this process in MB, now and at its highest."""
    with open("/proc/self/status", encoding="ascii") as lines:
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return {"rss_mb": int(fields["VmRSS"].split()[0]) / 1024, "peak_rss_mb": int(fields["VmHWM"].split()[0]) / 1024}
