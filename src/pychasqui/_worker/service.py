"""What the worker's loops have in common: they run until they are told to stop, and they outlast any trouble."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from .._core.printable import printable
from ..errors import CommandTimeout, ConnectionLost, RedisTrouble

log = logging.getLogger("chasqui.worker")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class Service:
    """start() -> _run() in a task, sleeping and being woken -> end(). A loop that dies is reported at once."""

    title = "service"

    def __init__(self, on_death: Callable[[str, BaseException], None]) -> None:
        self._on_death = on_death
        self._task: asyncio.Task[None] | None = None
        self._sleeper: asyncio.Future[None] | None = None
        self._is_stopping = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"chasqui {self.title}")
        self._task.add_done_callback(self._see_end)

    def wake(self) -> None:
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)

    async def end(self, patience_s: float) -> None:
        """Let the loop come to its end by itself for so long, then cut it off."""
        self._is_stopping = True
        self.wake()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=patience_s)
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        raise NotImplementedError

    async def _sleep(self, seconds: float | None = None) -> None:
        """Until woken, or for so long."""
        if self._is_stopping:
            return
        loop = asyncio.get_running_loop()
        self._sleeper = loop.create_future()
        timer = None if seconds is None else loop.call_later(max(seconds, 0), self.wake)
        await self._sleeper
        if timer is not None:
            timer.cancel()

    def _see_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_death(self.title, error)


class Outage:
    """Trouble with Redis as one loop sees it: a line when it begins, a line when it is over, longer and longer pauses.

    A lost connection is told of where it is noticed first, by the connection itself.
    """

    def __init__(self, cannot: str, again: str) -> None:
        self._cannot = cannot
        self._again = again
        self._pause = 0.0
        self._is_told = False
        self.trouble: str | None = None  # what was told

    def goes_on(self, error: Exception) -> float:
        """Returns how long to wait before the next try. What is no trouble with Redis is a defect, and shown as one."""
        if not self._is_told and not isinstance(error, (ConnectionLost, CommandTimeout)):
            if isinstance(error, RedisTrouble):
                log.warning("%s: %s", self._cannot, error)
            else:
                log.error("%s: %r", self._cannot, error, exc_info=error)
            self._is_told = True
            self.trouble = printable(f"{type(error).__name__}: {error}")
        self._pause = min(max(self._pause * 2, FIRST_PAUSE_S), LONGEST_PAUSE_S)
        return self._pause

    def is_over(self) -> None:
        if self._is_told:
            log.info("%s", self._again)
        self._pause, self._is_told, self.trouble = 0.0, False, None

    @property
    def is_on(self) -> bool:
        return self._pause > 0


def until_free_s(lease_left_ms: int, most_s: float) -> float:
    """How long to wait for a lease that another holds: until it ends if it is not renewed, so that nothing is held up
    for longer than that; -1 if it has no end."""
    return most_s if lease_left_ms < 0 else min(most_s, (lease_left_ms + 1) / 1000)
