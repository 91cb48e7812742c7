"""What a handler can say about its job while it runs: how far it is, and lines of a log.

Both are sent without waiting, from whichever thread the handler runs in, and kept for a while. They are bounded, and
nothing that matters depends on them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Any

from .._redis.broker import Broker
from .._wire.event import Event, progress_event
from .._wire.job_log import cut_line
from ..errors import RedisTrouble

log = logging.getLogger("chasqui.worker")

MAX_LINES = 1000


class JobReporter:
    def __init__(self, broker: Broker, *, kept_ms: int, tell: Callable[[list[Event]], None] | None) -> None:
        self._broker = broker
        self._kept_ms = kept_ms
        self._tell = tell
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """From the worker's loop, before the first job runs."""
        self._loop = asyncio.get_running_loop()

    def progress(self, job_id: str, job_name: str, percent: int, extras: tuple[str | int, ...]) -> AlreadyDone:
        self._in_loop(self._send_progress, job_id, job_name, percent, extras)
        return AlreadyDone()

    def log(self, job_id: str, line: str) -> AlreadyDone:
        self._in_loop(self._broker.add_log_line, job_id, cut_line(line), MAX_LINES, self._kept_ms, _report)
        return AlreadyDone()

    def _send_progress(self, job_id: str, job_name: str, percent: int, extras: tuple[str | int, ...]) -> None:
        self._broker.set_progress(job_id, percent, self._kept_ms, _report)
        if self._tell is not None:
            self._tell([progress_event(job_id, job_name, percent, extras)])

    def _in_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            function(*arguments)
        else:
            self._loop.call_soon_threadsafe(function, *arguments)


class AlreadyDone:
    """There is nothing to wait for, but who awaits it may."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


def _report(reply: Any) -> None:
    if isinstance(reply, RedisTrouble):
        log.info("what a job said of itself was not kept: %s", reply)
