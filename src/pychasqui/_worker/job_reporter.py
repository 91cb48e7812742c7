"""Sends what a handler reports about its running job: its progress, and lines of its log.

Both are sent without waiting for Redis, from the event loop or from a handler's thread. Redis keeps them for `kept_ms`
and up to MAX_LINES lines. No guarantee depends on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

from .._core.guarded_log import GuardedLogger
from .._redis.broker import Broker
from .._wire.event import Event, make_progress_event
from .._wire.job_log import cut_line
from ..errors import RedisTrouble
from .job_stops import JobStops

log = GuardedLogger("chasqui.worker")

MAX_LINES = 1000


class JobReporter:
    """`emit` writes events; None if the worker writes none."""

    def __init__(
        self, broker: Broker, *, kept_ms: int, emit: Callable[[list[Event]], None] | None, stops: JobStops
    ) -> None:
        self.stops = stops  # by which a handler sees that it is to stop
        self._broker = broker
        self._kept_ms = kept_ms
        self._emit = emit
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind_to_running_loop(self) -> None:
        """Remembers the worker's event loop. Called in it, before the first job runs."""
        self._loop = asyncio.get_running_loop()

    def progress(self, job_id: str, job_name: str, percent: int, extras: tuple[str | int, ...]) -> AlreadyDone:
        self._call_in_loop(self._send_progress, job_id, job_name, percent, extras)
        return AlreadyDone()

    def log(self, job_id: str, line: str) -> AlreadyDone:
        self._call_in_loop(self._broker.add_log_line, job_id, cut_line(line), MAX_LINES, self._kept_ms, _log_if_refused)
        return AlreadyDone()

    def _send_progress(self, job_id: str, job_name: str, percent: int, extras: tuple[str | int, ...]) -> None:
        self._broker.set_progress(job_id, percent, self._kept_ms, _log_if_refused)
        if self._emit is not None:
            self._emit([make_progress_event(job_id, job_name, percent, extras)])

    def _call_in_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            function(*arguments)
        else:
            with suppress(RuntimeError):  # the loop has ended, and a thread goes on
                self._loop.call_soon_threadsafe(function, *arguments)


class AlreadyDone:
    """An awaitable that is done at once, so that a handler may await progress() and log()."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


def _log_if_refused(reply: Any) -> None:
    if isinstance(reply, RedisTrouble):
        log.info("a job's progress or log line was not stored: %s", reply)
