"""Runs plain functions as handlers, each call in a thread of the worker's own.

The event loop puts calls into one inbox, and a thread that finds it empty parks on a lock of its own. A call wakes one
parked thread, or starts one; a thread that leaves calls behind wakes the next. So a burst of short calls costs one or
two wake-ups, and no call waits behind one that blocks. Outcomes are held back while there are further calls in the
inbox, unless a call has taken long, and one wake-up of the loop brings all of them.

Exceptions travel as values: a future would treat StopIteration and SystemExit in ways of its own, and the lane that
waits for it would hang or end.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import inspect
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from ..job import Job

LONG_CALL_S = 0.0002  # a few times what a wake-up of the loop costs; the outcome of a longer call is not held back


class Threads:
    """run() is a handler that can be awaited; the function sees the context variables of its lane."""

    def __init__(self, handler: Callable[[Job], Any], count: int) -> None:
        self._handler = handler
        self._most = count
        self._loop: asyncio.AbstractEventLoop | None = None  # from the first run() on
        self._inbox: deque[_Call] = deque()
        self._ended: deque[_Call] = deque()
        self._parked: list[threading.Lock] = []
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()
        self._is_waking = False  # a thread is about to look into the inbox
        self._report_is_due = False
        self._is_closed = False

    async def run(self, job: Job) -> Any:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        call = _Call(job, contextvars.copy_context(), self._loop.create_future())
        self._inbox.append(call)
        if not self._is_waking:
            self._wake_one()
        if not self._threads:
            self._inbox.remove(call)
            raise RuntimeError("no thread can be started")
        try:
            outcome = await call.future
        except asyncio.CancelledError:
            call.is_off = True
            raise
        if type(outcome) is _Raised:
            try:
                raise outcome.error
            finally:
                del outcome, call  # otherwise the error would be part of a reference cycle
        return await outcome if _is_awaitable(outcome) else outcome  # a lambda around an async function

    def close(self) -> None:
        """Starts nothing more. Running calls go on, because a thread cannot be stopped."""
        self._is_closed = True
        self._inbox.clear()
        while self._parked:
            self._parked.pop().release()
        atexit.unregister(self._await_running_calls)
        if any(thread.is_alive() for thread in self._threads):
            atexit.register(self._await_running_calls)

    def _wake_one(self) -> None:
        """Wake a parked thread, or start one. The loop calls it, and so do threads."""
        # hot: one at a time, 3 us a call against 18 if each call wakes a thread; benchmarks work-def
        self._is_waking = True
        try:
            self._parked.pop().release()
        except IndexError:
            with self._starting:
                if len(self._threads) == self._most or self._is_closed or not self._try_start_thread():
                    self._is_waking = False  # a busy thread looks into the inbox when its call ends

    def _try_start_thread(self) -> bool:
        # A daemon, so that a worker that was never closed does not keep the process alive; see _await_running_calls().
        name = f"chasqui-lane_{len(self._threads)}"
        thread = threading.Thread(target=self._run_calls, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has none left
            return False
        self._threads.append(thread)
        if len(self._threads) == 1:
            atexit.register(self._await_running_calls)
        return True

    def _await_running_calls(self) -> None:
        """The interpreter exits: let running calls end first, as non-daemon threads would."""
        self.close()
        for thread in self._threads:
            thread.join()

    def _run_calls(self) -> None:
        parking, inbox, ended = threading.Lock(), self._inbox, self._ended
        parking.acquire()
        self._is_waking = False
        while True:
            try:
                call = inbox.popleft()
            except IndexError:
                self._park(parking)
                if self._is_closed:
                    return
                continue
            if not inbox:
                if ended:  # held back by threads that saw this call in the inbox; it may block
                    self._schedule_delivery()
            elif not self._is_waking:
                self._wake_one()
            if not call.is_off:
                started_at = monotonic()
                call.outcome = call.context.run(self._call_handler, call.job)
                ended.append(call)
                if not inbox or monotonic() - started_at > LONG_CALL_S:
                    self._schedule_delivery()
            del call

    def _schedule_delivery(self) -> None:
        if not self._report_is_due:
            self._report_is_due = True
            assert self._loop is not None
            with suppress(RuntimeError):  # the loop is closed, nobody waits any more
                self._loop.call_soon_threadsafe(self._deliver_outcomes)

    def _park(self, parking: threading.Lock) -> None:
        """Block until woken. A call that came between the look into the inbox and the parking is seen here."""
        self._parked.append(parking)
        if self._inbox or self._is_closed:
            with suppress(ValueError):  # it was taken out to be woken: the lock is about to be released
                self._parked.remove(parking)
                return
        parking.acquire()
        self._is_waking = False

    def _deliver_outcomes(self) -> None:
        """Runs in the loop: hands all gathered outcomes to the lanes that wait for them."""
        self._report_is_due = False  # before the first look: a call that ends after it schedules another delivery
        while self._ended:
            call = self._ended.popleft()
            if not call.future.done():
                call.future.set_result(call.outcome)

    def _call_handler(self, job: Job) -> Any:
        try:
            result = self._handler(job)
            if type(result) in (GeneratorType, AsyncGeneratorType) and not _is_awaitable(result):
                raise TypeError("the handler returned a generator, whose body has not run")
        except StopIteration as stop:  # a coroutine cannot raise it either, and converts it in the same way
            error = RuntimeError("the handler raised StopIteration")
            error.__cause__ = stop
            return _Raised(error)
        except BaseException as error:  # noqa: BLE001  a handler may raise anything
            return _Raised(error)
        return result


class _Call:
    """One call of the handler."""

    __slots__ = ("context", "future", "is_off", "job", "outcome")

    def __init__(self, job: Job, context: contextvars.Context, future: asyncio.Future[Any]) -> None:
        self.job = job
        self.context = context
        self.future = future
        self.outcome: Any = None
        self.is_off = False  # nobody waits for it any more


class _Raised:
    def __init__(self, error: BaseException) -> None:
        self.error = error


def _is_awaitable(result: object) -> bool:
    """inspect.isawaitable(), which asks the object for its class."""
    if result is None:
        return False
    try:
        return inspect.isawaitable(result)
    except BaseException:  # noqa: BLE001  the object is the user's, and may raise anything
        return False
