"""Runs tasks that are plain functions in threads, and outlives a cancellation until the function has ended.

A thread cannot be stopped. If a closing worker's cancellation ended the call, the job would be handed back while its
function still runs, and run twice at the same time. If the function returns an awaitable, the event loop awaits it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from .._worker.threads import Threads
from ..errors import Closed
from .unfinished_results import close_if_coroutine, is_awaitable_refusing_generators
from .wire_values import SCALARS

CLOSED = "the threads for plain functions are closed"


class ThreadCalls:
    """run_to_end_once_begun() returns what a function returns; close_without_waiting(). Belongs to one event loop."""

    def __init__(self, count: int) -> None:
        self._inbox: deque[_ThreadCall] = deque()
        self._ended: deque[_ThreadCall] = deque()
        self._wake_up_is_due = False
        self._is_closed = False
        self._threads = Threads(count, run_jobs=self._run_waiting_calls, has_job=lambda: bool(self._inbox))

    async def run_to_end_once_begun(self, function: Callable[[], Any]) -> Any:
        if self._is_closed:
            raise Closed(CLOSED)
        call = _ThreadCall(function, asyncio.get_running_loop())
        self._inbox.append(call)
        if not self._threads.is_waking:
            self._threads.wake_or_start_one_unless_all_busy()
        if not self._threads.count:
            self._inbox.remove(call)
            raise RuntimeError("no thread can be started")
        await call.wait_ignoring_cancellation_once_begun()
        if call.error is not None:
            try:
                raise call.error
            finally:
                del call  # otherwise the error would be part of a reference cycle
        result = call.result
        if type(result) in SCALARS or not is_awaitable_refusing_generators(result):
            return result
        if call.was_cancelled_while_running:
            close_if_coroutine(result)
            raise asyncio.CancelledError
        call.copy_context_variables_to_caller()
        return await result

    def close_without_waiting(self) -> None:
        """Starts nothing more: calls that wait for a thread raise Closed. Functions that run go on."""
        self._is_closed = True
        self._threads.close()
        with suppress(IndexError):
            while True:  # a thread may take the next call meanwhile
                self._inbox.popleft().fail_and_wake_caller(Closed(CLOSED))

    def _run_waiting_calls(self, _thread_number: int) -> None:
        """Runs in a thread."""
        while True:
            try:
                call = self._inbox.popleft()
            except IndexError:
                return
            if self._inbox and not self._threads.is_waking:
                self._threads.wake_or_start_one_unless_all_busy()
            if call.run_keeping_error_unless_cancelled():
                self._ended.append(call)
                if not self._wake_up_is_due:
                    self._wake_up_is_due = True
                    with suppress(RuntimeError):  # the loop is closed, nobody waits any more
                        call.loop.call_soon_threadsafe(self._wake_callers_of_ended_calls)
            del call

    def _wake_callers_of_ended_calls(self) -> None:
        """Runs in the loop: wakes all whose function has ended."""
        self._wake_up_is_due = False  # before the first look: a call that ends after it schedules another delivery
        while self._ended:
            self._ended.popleft().finish_and_wake_caller()


class _ThreadCall:
    """One call of a function."""

    def __init__(self, function: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.result: Any = None
        self.error: BaseException | None = None
        self.was_cancelled_while_running = False
        self._function = function
        self._context = copy_context()
        self._lock = threading.Lock()
        self._is_begun = False
        self._is_cancelled = False  # it was cancelled before it began
        self._is_finished = False
        self._waiter: asyncio.Future[None] = loop.create_future()

    def run_keeping_error_unless_cancelled(self) -> bool:
        with self._lock:
            if self._is_cancelled:
                return False
            self._is_begun = True
        try:
            self.result = self._context.run(self._function)
        except BaseException as error:  # noqa: BLE001  a function may raise anything
            self.error = error
        return True

    def fail_and_wake_caller(self, error: BaseException) -> None:
        """Has the caller raise this error. Only for a call that no thread has taken."""
        self.error = error
        self.finish_and_wake_caller()

    async def wait_ignoring_cancellation_once_begun(self) -> None:
        """Waits for the function, however often it is cancelled, unless the function has not begun."""
        while not self._is_finished:
            try:
                await self._waiter
            except asyncio.CancelledError:
                with self._lock:
                    self._is_cancelled = not self._is_begun
                if self._is_cancelled:
                    raise
                self.was_cancelled_while_running = True
                self._waiter = self.loop.create_future()

    def copy_context_variables_to_caller(self) -> None:
        """Sets in the caller's context what the function has set in its own."""
        for variable, value in self._context.items():
            if variable.get(self) is not value:
                variable.set(value)

    def finish_and_wake_caller(self) -> None:
        self._is_finished = True
        if not self._waiter.done():
            self._waiter.set_result(None)
