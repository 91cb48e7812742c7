"""Sends what a handler reports about its running job: its progress, and lines of its log.

Both are sent without waiting for Redis, from the event loop or from a handler's thread. Redis keeps them for `kept_ms`
and up to MAX_LINES lines. No guarantee depends on them.

What is reported waits in memory until the event loop turns. Within one turn up to MAX_TURN_BYTES are taken, and the
rest is dropped; a handler that awaits its reports lets the loop turn before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

from .._core.guarded_log import GuardedLogger
from .._redis.broker import Broker
from .._wire.event import Event, make_progress_event
from .._wire.job_log import cut_log_line
from ..errors import ConnectionLost, RedisTrouble
from .job_stops import JobStops

log = GuardedLogger("chasqui.worker")

MAX_LINES = 1000
MAX_TURN_BYTES = 8 * 1024 * 1024
REPORT_COST_BYTES = 1000  # what a report takes beside its text: two commands, and their places among those in flight
PAUSE_S = 0.001  # for which a handler that awaits its reports lets the loop turn


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
        self._turn_bytes = 0  # of what was reported in this turn of the loop
        self._is_losing = False

    def remember_running_loop(self) -> None:
        """Remembers the worker's event loop. Called in it, before the first job runs."""
        self._loop = asyncio.get_running_loop()

    def report_or_drop_progress(
        self, job_id: str, job_name: str, percent: int, extras: tuple[str | int, ...]
    ) -> Reported:
        self._call_in_loop_unless_ended(self._send_or_drop_progress, job_id, job_name, percent, extras)
        return Reported(self._has_room)

    def report_or_drop_log_line(self, job_id: str, line: str) -> Reported:
        self._call_in_loop_unless_ended(self._send_or_drop_line, job_id, cut_log_line(line))
        return Reported(self._has_room)

    def _send_or_drop_progress(self, job_id: str, job_name: str, percent: int, extras: tuple[str | int, ...]) -> None:
        if self._take_turn_room_or_log_loss(REPORT_COST_BYTES):
            self._broker.send_progress(job_id, percent, self._kept_ms, self._log_if_newly_lost)
            if self._emit is not None:
                self._emit([make_progress_event(job_id, job_name, percent, extras)])

    def _send_or_drop_line(self, job_id: str, line: str) -> None:
        if self._take_turn_room_or_log_loss(REPORT_COST_BYTES + len(line)):
            self._broker.send_log_line(job_id, line, MAX_LINES, self._kept_ms, self._log_if_newly_lost)

    def _take_turn_room_or_log_loss(self, size: int) -> bool:
        """Takes room for a report in this turn of the loop. Returns False if there is none, and logs the loss."""
        assert self._loop is not None
        if not self._turn_bytes:
            self._loop.call_soon(self._begin_turn)
        self._turn_bytes += size
        if self._turn_bytes <= MAX_TURN_BYTES:
            return True
        self._log_if_newly_lost(ConnectionLost("too much was reported at once: await progress() and log()"))
        return False

    def _begin_turn(self) -> None:
        self._turn_bytes = 0

    def _has_room(self) -> bool:
        """Returns whether a further report would be sent.

        While there is no connection it is dropped: no handler waits then.
        """
        return 2 * self._turn_bytes <= MAX_TURN_BYTES and not self._broker.is_congested

    def _log_if_newly_lost(self, reply: Any) -> None:
        """Logs the first loss of a series."""
        is_lost = isinstance(reply, RedisTrouble)
        if is_lost and not self._is_losing:
            log.info("a job's progress or log line was not stored: %s", reply)
        self._is_losing = is_lost

    def _call_in_loop_unless_ended(self, function: Callable[..., None], *arguments: Any) -> None:
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


class Reported:
    """What the reports return. Awaited, it is done at once, unless too much is on its way to Redis."""

    __slots__ = ("_has_room",)

    def __init__(self, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room

    def __await__(self) -> Generator[Any, None, None]:
        while not self._has_room():
            yield from asyncio.sleep(PAUSE_S).__await__()
