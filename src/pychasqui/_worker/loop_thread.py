"""A thread with an event loop of its own, beside the worker's loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from .shared import OnDeath


class LoopThread:
    """start_and_wait_until_begun() -> it runs in the thread and calls report_begun() -> end_thread() ends it.

    What ends the coroutine before it has begun is raised by start_and_wait_until_begun(); what ends it later goes to
    `on_death`, in the worker's loop.
    """

    def __init__(self, title: str, on_death: OnDeath) -> None:
        self._title = title
        self._on_death = on_death
        self._thread: threading.Thread | None = None
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._worker_loop: asyncio.AbstractEventLoop | None = None
        self._begun: asyncio.Future[None] | None = None  # of the worker's loop, as is the next
        self._ended: asyncio.Future[None] | None = None
        self._is_stopping = False

    async def start_and_wait_until_begun(self, make_coroutine: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._worker_loop = asyncio.get_running_loop()
        self._begun, self._ended = self._worker_loop.create_future(), self._worker_loop.create_future()
        thread = threading.Thread(
            target=self._run_thread, args=(make_coroutine,), name=f"chasqui {self._title}", daemon=True
        )
        thread.start()
        self._thread = thread
        try:
            await self._begun
        except asyncio.CancelledError:
            await self.end_thread()
            raise

    async def end_thread(self, *, cancel_after_s: float = 0.0) -> None:
        """Waits until the coroutine has ended and the thread with it; cancels the coroutine after this time."""
        if self._thread is None or self._ended is None:
            return
        self._is_stopping = True
        await asyncio.wait({self._ended}, timeout=cancel_after_s)
        if self._task is not None:
            self.call_soon_in_thread_if_running(self._task.cancel)
        await asyncio.wait({self._ended})
        self._thread.join()
        self._thread = None

    def call_soon_in_thread_if_running(self, function: Callable[..., object], *arguments: object) -> None:
        """Is called in the worker's loop."""
        if self._own_loop is not None:
            with suppress(RuntimeError):  # the thread's loop has ended already
                self._own_loop.call_soon_threadsafe(function, *arguments)

    def call_soon_in_worker_loop_if_running(self, function: Callable[..., object], *arguments: object) -> None:
        """Is called in the thread."""
        assert self._worker_loop is not None
        with suppress(RuntimeError):  # the worker's loop has ended; the thread is about to
            self._worker_loop.call_soon_threadsafe(function, *arguments)

    @property
    def is_worker_loop_closed(self) -> bool:
        """For the thread: whether the worker's loop has ended for good."""
        return self._worker_loop is not None and self._worker_loop.is_closed()

    def report_begun(self) -> None:
        """Lets start_and_wait_until_begun() return. Is called in the thread."""
        self.call_soon_in_worker_loop_if_running(self._mark_as_begun)

    def _run_thread(self, make_coroutine: Callable[[], Coroutine[Any, Any, None]]) -> None:
        death: BaseException | None = None
        try:
            with asyncio.Runner() as runner, suppress(asyncio.CancelledError):
                runner.run(self._run_coroutine_unless_stopping(make_coroutine))
        except BaseException as error:  # noqa: BLE001  the thread's border: the worker hears of whatever it is
            death = error
        finally:
            self.call_soon_in_worker_loop_if_running(self._note_end_and_report_death, death)

    async def _run_coroutine_unless_stopping(self, make_coroutine: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._own_loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if not self._is_stopping:  # already, before there was a task to cancel
            await make_coroutine()

    def _mark_as_begun(self) -> None:
        """Runs in the worker's loop, as does _note_end_and_report_death()."""
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(None)

    def _note_end_and_report_death(self, death: BaseException | None) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        if self._begun is None or self._begun.done():
            if death is not None:
                self._on_death(self._title, death)
        elif death is None:
            self._begun.set_result(None)
        else:
            self._begun.set_exception(death)
