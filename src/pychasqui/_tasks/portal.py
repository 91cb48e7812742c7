"""Portal: one event loop for the synchronous callers of a process, in a thread of its own.

It starts at the first call. All calls of one turn of the loop share one wake-up, and each caller waits on a lock.

A fork copies one thread. Before a fork an idle portal closes what it holds and ends its thread, so that no lock is
held by a thread that the child does not have; a busy one stays. In the child everything is forgotten, and nothing is
closed: it is the parent's. At exit the portal closes what it holds; a call that comes later runs in the thread of its
caller, because threads cannot be started by then.
"""

from __future__ import annotations

import asyncio
import atexit
import encodings.idna  # noqa: F401  the loop needs it for host names; an import in its thread could be cut by a fork
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from ..embedded import supervisor  # noqa: F401  the same holds for embedded://
from ..errors import WrongLoop

T = TypeVar("T")

CLOSING_S = 5.0  # how long the end of a process waits for connections to be closed


class Closable(Protocol):
    """What a portal closes on its loop before it ends."""

    async def close(self) -> None: ...


class Portal:
    """call(make, holder) runs the coroutine that `make()` returns, and blocks until it has ended.

    `holder` is what the coroutine opens connections in. It is closed on the portal's loop before that ends.
    """

    def __init__(self) -> None:
        self._forget_all()
        self._left_behind: list[object] = []  # of the parent process: freed, they would be closed
        self._is_exiting = False

    def _forget_all(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._inbox: deque[_PortalCall] = deque()
        self._is_due = False  # the loop is about to look into the inbox
        self._holders: set[Closable] = set()
        self._calls = 0  # that have not ended
        self._is_forking = False

    def call(self, make: Callable[[], Coroutine[Any, Any, T]], holder: Closable) -> T:
        call = _PortalCall(make)
        with self._lock:
            loop = None if self._is_exiting else self._loop or self._try_start()
            if loop is not None:
                self._calls += 1
                self._holders.add(holder)
                self._inbox.append(call)
                if not self._is_due:
                    self._is_due = True
                    loop.call_soon_threadsafe(self._start_calls)
        if loop is None:
            return _run_alone(make, holder)
        try:
            result: T = call.wait(loop)
        finally:
            with self._lock:
                self._calls -= 1
        return result

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    # In its thread --------------------------------------------------------------------------------------------------

    def _start_calls(self) -> None:
        self._is_due = False  # before the first look: a call that comes after it wakes the loop again
        while self._inbox:
            self._inbox.popleft().start()

    # From its start to its end --------------------------------------------------------------------------------------

    def _try_start(self) -> asyncio.AbstractEventLoop | None:
        """Starts the loop; None if no thread can be started, because the interpreter exits."""
        loop = _PortalLoop()  # never uvloop: a daemon thread of its may crash the exit
        thread = threading.Thread(target=loop.run_forever, name="chasqui-sync", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            loop.close()
            return None
        self._loop, self._thread = loop, thread
        return loop

    def _stop(self) -> None:
        """Closes the holders and ends the thread. The lock is held."""
        loop, thread, holders = self._loop, self._thread, list(self._holders)
        if loop is None or thread is None:
            return
        closing = asyncio.run_coroutine_threadsafe(_close_all(holders), loop)
        with suppress(TimeoutError):
            closing.result(CLOSING_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSING_S)
        if not thread.is_alive():
            loop.close()
        self._loop = self._thread = None
        self._holders.clear()

    def stop_at_exit(self) -> None:
        with self._lock:
            self._is_exiting = True
            if not self._calls:
                self._stop()

    def before_fork(self) -> None:
        if threading.current_thread() is self._thread:
            return
        self._lock.acquire()
        self._is_forking = True
        if not self._calls:
            self._stop()

    def after_fork_in_parent(self) -> None:
        if self._is_forking:
            self._is_forking = False
            self._lock.release()

    def after_fork_in_child(self) -> None:
        self._left_behind += [self._loop, self._thread, self._inbox, self._holders]
        self._forget_all()


class _PortalCall:
    """One call: made by a caller, run on the loop."""

    __slots__ = ("_ended", "_error", "_make", "_result", "_task")

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._make = make
        self._ended = threading.Lock()
        self._ended.acquire()
        self._result: Any = None
        self._error: BaseException | None = None
        self._task: asyncio.Task[Any] | None = None

    def wait(self, loop: asyncio.AbstractEventLoop) -> Any:
        """Blocks until it has ended. Ctrl-C cancels it."""
        try:
            self._ended.acquire()
        except BaseException:
            loop.call_soon_threadsafe(self._cancel)
            raise
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # otherwise it would be part of a reference cycle
        return self._result

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            self._result = await self._make()
        except BaseException as error:  # noqa: BLE001  the caller raises it
            self._error = error
        self._ended.release()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


async def _close_all(holders: list[Closable]) -> None:
    await asyncio.gather(*(holder.close() for holder in holders), return_exceptions=True)


class _PortalLoop(asyncio.SelectorEventLoop):
    """A loop that finds host names also while the interpreter exits, when no thread can be started for that."""

    async def getaddrinfo(self, host: Any, port: Any, **options: int) -> Any:
        try:
            return await super().getaddrinfo(host, port, **options)
        except RuntimeError:
            return socket.getaddrinfo(host, port, **options)


def _run_alone(make: Callable[[], Coroutine[Any, Any, T]], holder: Closable) -> T:
    loop = _PortalLoop()

    async def run() -> T:
        try:
            return await make()
        finally:
            await holder.close()

    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


def refuse_in_loop(what: str, instead: str) -> None:
    """Raises WrongLoop where an event loop runs: a blocking call would stop it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongLoop(f"{what} would block the event loop that runs here: {instead}")


portal = Portal()  # one a process
atexit.register(portal.stop_at_exit)  # at import: handlers that are registered later come before it
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing is forked
    os.register_at_fork(
        before=portal.before_fork,
        after_in_parent=portal.after_fork_in_parent,
        after_in_child=portal.after_fork_in_child,
    )
