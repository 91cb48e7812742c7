"""Service: a loop of the worker that runs until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Service:
    """start() -> _run_until_stopped() in a task, which sleeps and is woken -> end().

    A loop that dies calls `on_death`.
    """

    title = "service"

    def __init__(self, on_death: Callable[[str, BaseException], None]) -> None:
        self._on_death = on_death
        self._task: asyncio.Task[None] | None = None
        self._sleeper: asyncio.Future[None] | None = None
        self._is_stopping = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run_until_stopped(), name=f"chasqui {self.title}")
        self._task.add_done_callback(self._report_death_if_failed)

    def wake_if_asleep(self) -> None:
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)

    async def end(self, timeout_s: float) -> None:
        """Waits until the loop ends by itself, and cancels it after `timeout_s`."""
        self._is_stopping = True
        self.wake_if_asleep()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout_s)
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run_until_stopped(self) -> None:
        raise NotImplementedError

    async def _sleep_until_woken(self, seconds: float | None = None) -> None:
        """Sleeps until wake_if_asleep(), or for this long."""
        if self._is_stopping:
            return
        loop = asyncio.get_running_loop()
        self._sleeper = loop.create_future()
        timer = None if seconds is None else loop.call_later(max(seconds, 0), self.wake_if_asleep)
        await self._sleeper
        if timer is not None:
            timer.cancel()

    def _report_death_if_failed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_death(self.title, error)
