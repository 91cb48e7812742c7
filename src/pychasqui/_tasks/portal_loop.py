"""PortalLoop: the event loop of a Portal, which its callers run in turn, also while the interpreter exits."""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from contextvars import Context
from threading import get_ident
from typing import Any, Generic, TypeVar

T = TypeVar("T")
MAX_SKIPS = 3
CANCELLING_S = 1.0  # for the tasks that are left when the loop ends
LAST_KNOWN_PYTHON = (
    3,
    13,
)  # with a later one, whose asyncio may differ, run_without_task_until_ended_or_stopped() is not used
PRIVATE_PARTS = (
    "_run_once",
    "_stopping",
    "_thread_id",
)  # of asyncio's loop, which run_without_task_until_ended_or_stopped() uses


def get_running_loop_or_none() -> asyncio.AbstractEventLoop | None:
    """Returns the loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# hot: get_running_loop() raises where none runs, which takes 1 us
get_running_loop_or_none = getattr(asyncio, "_get_running_loop", get_running_loop_or_none)


class CoroutineResult(Generic[T]):
    """What a coroutine has returned."""

    __slots__ = ("result",)

    def __init__(self, result: T) -> None:
        self.result = result


class RestOfCoroutine(Generic[T]):
    """What is left of a coroutine that waits for a future: an awaitable, for a Task."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], waiting: Any) -> None:
        self._coroutine = coroutine
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, T]:
        waiting, error = self._waiting, None  # the coroutine's own await has marked it for a Task
        while True:
            try:
                yield waiting
            except BaseException as raised:  # noqa: BLE001  a cancellation, too, is the coroutine's
                error = raised
            try:
                waiting = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            error = None


class _PollSkippingSelector(selectors.DefaultSelector):
    """Asks the system less often: not in each turn of the loop that has something to run already.

    hot: 2 us a question, and each lets go of the GIL: with sixteen threads another takes it
    """

    def __init__(self) -> None:
        super().__init__()
        self._skips = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 and self._skips < MAX_SKIPS:
            self._skips += 1
            return []
        self._skips = 0
        return super().select(timeout)

    def poll_in_next_turn(self) -> None:
        self._skips = MAX_SKIPS


class PortalLoop(asyncio.SelectorEventLoop):
    """A plain selector loop; never uvloop, which cannot be run by several threads in turn."""

    _is_abandoned = False
    # asyncio's own, up to LAST_KNOWN_PYTHON
    _run_once: Callable[[], None]
    _stopping: bool
    _thread_id: int | None

    def __init__(self, on_signal: Callable[[], None]) -> None:
        self._poller = _PollSkippingSelector()
        super().__init__(self._poller)
        self._on_signal = on_signal
        self._can_run_without_task = _has_known_asyncio_internals(self)
        self._signals, self._signals_in = socket.socketpair()
        self._signals.setblocking(False)
        self._signals_in.setblocking(False)
        self.add_reader(self._signals, self._empty_wakeup_socket_and_notify)

    @property
    def wakeup_fd(self) -> int:
        """For signal.set_wakeup_fd(): the system may interrupt another thread than the one that runs handlers."""
        return self._signals_in.fileno()

    def _empty_wakeup_socket_and_notify(self) -> None:
        with suppress(BlockingIOError):
            self._signals.recv(4096)
        self._on_signal()

    def run_one_turn(self) -> None:
        """Runs one turn: reads what has come while nobody ran the loop, such as the end of a connection."""
        self._poller.poll_in_next_turn()
        self.call_soon(self.stop)
        self.run_forever()

    @property
    def can_run_without_task(self) -> bool:
        """Whether run_without_task_until_ended_or_stopped() works with this Python. If not, a Task does the same, in
        more time."""
        return self._can_run_without_task

    def run_without_task_until_ended_or_stopped(
        self, make_coroutine: Callable[[], Coroutine[Any, Any, T]], context: Context
    ) -> CoroutineResult[T] | RestOfCoroutine[T]:
        """Runs a coroutine in this thread until it ends or the loop is stopped; raises what it raises.

        The coroutine is no Task: it must not ask for the current one, as asyncio.timeout() does.
        """
        # hot: a call takes 20 us less than by a Task and run_forever(): the loop turns once, and not three times
        self._thread_id = get_ident()
        asyncio._set_running_loop(self)
        try:
            coroutine = make_coroutine()
            while True:
                waiting = context.run(coroutine.send, None)
                if waiting is None:  # asyncio.sleep(0)
                    self._run_once()
                    continue
                while not waiting.done():
                    self._run_once()
                    if self._stopping:
                        return RestOfCoroutine(coroutine, waiting)
        except StopIteration as stop:
            return CoroutineResult(stop.value)
        finally:
            self._stopping = False
            self._thread_id = None
            asyncio._set_running_loop(None)

    def cancel_and_await_remaining_tasks(self) -> None:
        """Ends them, as asyncio.run() does: asyncio logs each task that is freed while it waits."""
        left = asyncio.all_tasks(self)
        for task in left:
            task.cancel()
        if left:
            with suppress(TimeoutError):
                self.run_until_complete(asyncio.wait_for(_await_tasks_ignoring_errors(left), CANCELLING_S))

    def close(self) -> None:
        if not self.is_closed() and not self.is_running():
            self.remove_reader(self._signals)
            self._signals.close()
            self._signals_in.close()
        super().close()

    async def getaddrinfo(self, host: Any, port: Any, **options: int) -> Any:
        """Finds host names also while the interpreter exits, when no thread can be started for that."""
        try:
            return await super().getaddrinfo(host, port, **options)
        except RuntimeError:
            return socket.getaddrinfo(host, port, **options)

    def abandon_in_child(self) -> None:
        """In the child of a fork: nothing that ends here may change what the parent waits for.

        Parent and child share the kernel's list of watched sockets, which would lose a socket that is closed here. So
        the child's descriptor of that list becomes one of the null device.
        """
        self._is_abandoned = True
        if hasattr(self._poller, "fileno"):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, self._poller.fileno(), inheritable=False)
            os.close(null)

    def __del__(self) -> None:
        if not self._is_abandoned:
            super().__del__()


async def _await_tasks_ignoring_errors(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _has_known_asyncio_internals(loop: PortalLoop) -> bool:
    if sys.version_info[:2] > LAST_KNOWN_PYTHON or not hasattr(asyncio, "_set_running_loop"):
        return False
    return all(hasattr(loop, part) for part in PRIVATE_PARTS)
