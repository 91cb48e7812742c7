"""DeferredSignals: while inside, the handlers of signals do not run in the middle of an event loop.

Python runs a handler between any two steps of the main thread. One that raises, as Ctrl-C does, would end whatever the
loop does right then: the call of another thread, or the reading of a reply.
"""

from __future__ import annotations

import signal

# hot: 0.4 us a signal; those of the module signal make an Enum of each number and each handler, and take 5
from _signal import getsignal as get_handler  # type: ignore[import-not-found]
from _signal import set_wakeup_fd
from _signal import signal as set_handler
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGUSR1", "SIGUSR2")  # whose handlers raise
SIGNALS = tuple(int(getattr(signal, name)) for name in NAMES if hasattr(signal, name))


class DeferredSignals:
    """For the main thread: no other runs handlers.

    `arrived` has the signals that wait for run_arrived_handlers(); `on_arrival` is called at each.
    """

    __slots__ = ("_fd_before", "_on_arrival", "_replaced", "arrived")

    def __init__(self, on_arrival: Callable[[], None]) -> None:
        self._on_arrival = on_arrival
        self._replaced: list[tuple[int, Any]] = []
        self._fd_before: int | None = None
        self.arrived: list[int] = []

    def __enter__(self) -> Self:
        self._replace_handlers()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd_before is not None:
            set_wakeup_fd(self._fd_before)
        self._restore_handlers()
        while self.arrived:
            signal.raise_signal(self.arrived.pop(0))

    def write_signals_to(self, fd: int) -> None:
        """Has a byte written there at each signal: the system may pass it to a thread that runs no handlers."""
        self._fd_before = set_wakeup_fd(fd, warn_on_full_buffer=False)

    def run_arrived_handlers(self) -> None:
        """Runs the handlers of the signals that have arrived. What they raise is raised here."""
        fd = None if self._fd_before is None else set_wakeup_fd(self._fd_before)
        self._restore_handlers()
        try:
            while self.arrived:
                signal.raise_signal(self.arrived.pop(0))
        finally:
            self._replace_handlers()
            if fd is not None:
                self.write_signals_to(fd)

    def _replace_handlers(self) -> None:
        for number in SIGNALS:
            handler = get_handler(number)
            if callable(handler):
                self._replaced.append((number, handler))
                set_handler(number, self._defer_signal)

    def _restore_handlers(self) -> None:
        while self._replaced:
            set_handler(*self._replaced.pop())

    def _defer_signal(self, number: int, frame: object) -> None:
        self.arrived.append(number)
        self._on_arrival()
