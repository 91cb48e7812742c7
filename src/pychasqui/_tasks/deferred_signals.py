"""DeferredSignals: while inside, the handlers of signals do not run in the middle of an event loop.

Python runs a handler between any two steps of the main thread. One that raises, as Ctrl-C does, would end whatever the
loop does right then: the call of another thread, or the reading of a reply.

Handlers are replaced and restored one by one, and one of the user's may run and raise in between. So what replaces them
is one function, which defers a signal only while a DeferredSignals is active, and runs the user's handler otherwise.
"""

from __future__ import annotations

import signal

# hot: 0.4 us a signal; those of the module signal make an Enum of each number and each handler, and take 5
from _signal import getsignal as get_handler  # type: ignore[import-not-found]
from _signal import set_wakeup_fd
from _signal import signal as set_handler
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Self

NAMES = (  # not SIGPROF: its handlers are of profilers, which look at what runs; nor real-time signals, which are many
    *("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGXCPU"),
    *("SIGCHLD", "SIGCONT", "SIGIO", "SIGPIPE", "SIGTSTP", "SIGURG", "SIGWINCH"),
)
SIGNALS = tuple(int(getattr(signal, name)) for name in NAMES if hasattr(signal, name))

_handlers: dict[int, Any] = {}  # the user's, by signal; they stay here when they are restored


class DeferredSignals:
    """For the main thread: no other runs handlers.

    `arrived` has the signals that wait for run_arrived_handlers(), each once; `on_arrival` is called at each.
    """

    __slots__ = ("_fd_before", "_on_arrival", "arrived")
    _active: ClassVar[DeferredSignals | None] = None

    def __init__(self, on_arrival: Callable[[], None]) -> None:
        self._on_arrival = on_arrival
        self._fd_before: int | None = None
        self.arrived: list[int] = []

    def __enter__(self) -> Self:
        try:
            _replace_handlers()
        except BaseException:
            _restore_handlers()
            raise
        DeferredSignals._active = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd_before is not None:
            set_wakeup_fd(self._fd_before)
        self._restore_and_run_arrived_handlers()

    def have_signals_written_to(self, fd: int) -> None:
        """Has a byte written there at each signal: the system may pass it to a thread that runs no handlers."""
        self._fd_before = set_wakeup_fd(fd, warn_on_full_buffer=False)

    def run_arrived_handlers(self) -> None:
        """Runs the handlers of all signals that have arrived. What the last of them raises is raised here."""
        fd = None if self._fd_before is None else set_wakeup_fd(self._fd_before)
        try:
            self._restore_and_run_arrived_handlers()
        finally:
            DeferredSignals._active = self
            try:
                _replace_handlers()
            finally:
                if fd is not None:
                    self.have_signals_written_to(fd)

    def _restore_and_run_arrived_handlers(self) -> None:
        try:
            _restore_handlers()  # while signals are deferred: none raises before it has begun
            DeferredSignals._active = None
            self._raise_arrived_signals()
        finally:
            DeferredSignals._active = None
            if self.arrived:
                self._raise_arrived_signals()

    def _raise_arrived_signals(self) -> None:
        try:
            while self.arrived:
                number = self.arrived[0]
                del self.arrived[0]  # no handler runs between this and the next call
                signal.raise_signal(number)
        finally:
            if self.arrived:
                self._raise_arrived_signals()

    def _defer_signal_and_notify(self, number: int) -> None:
        if number not in self.arrived:
            self.arrived.append(number)
        self._on_arrival()

    @classmethod
    def drop_arrived_and_restore_in_fork_child(cls) -> None:
        """In the child of a fork, where no call goes on: restores what the parent will restore."""
        active, cls._active = cls._active, None
        if active is not None:
            active.arrived.clear()
            if active._fd_before is not None:
                set_wakeup_fd(active._fd_before)
        _restore_handlers()


def _defer_or_handle_signal(number: int, frame: object) -> None:
    if (active := DeferredSignals._active) is not None:
        active._defer_signal_and_notify(number)
    else:
        _handlers[number](number, frame)


def _replace_handlers() -> None:
    """Replaces all handlers, also if one of them runs and raises meanwhile; raises that then."""
    try:
        for number in SIGNALS:
            handler = get_handler(number)
            if callable(handler) and handler is not _defer_or_handle_signal:
                _handlers[number] = handler
                set_handler(number, _defer_or_handle_signal)
    except BaseException:
        _replace_handlers()
        raise


def _restore_handlers() -> None:
    """Restores all handlers, also if one of them runs and raises meanwhile; raises that then.

    A handler that was set meanwhile stays.
    """
    try:
        for number, handler in _handlers.items():
            if get_handler(number) is _defer_or_handle_signal:
                set_handler(number, handler)
    except BaseException:
        _restore_handlers()
        raise
