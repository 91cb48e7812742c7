"""SIGINT and SIGTERM, for programs that ask for them. All programs of an event loop hear each signal.

They are caught by signal.signal() and not by the event loop: a loop hears of signals through a pipe that forked
children inherit, so that a signal to a child would be heard here. What belongs to this process ends at a fork: a child
has the handlers that were there before.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from ..errors import InvalidArgument

OnSignal = Callable[[str], None]
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Catcher:
    """Catches for one loop, from the first listener to the last."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.listeners: list[OnSignal] = []
        self._loop = loop
        self._process_id = os.getpid()
        self._before: dict[signal.Signals, Any] = {}

    def catch(self) -> None:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._hear)

    def restore(self) -> None:
        """What was there before, unless other code has put something else there meanwhile."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._hear:
                signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before.clear()

    def _hear(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._process_id:  # a child that was forked a moment ago
            self.restore()
            signal.raise_signal(number)
            return
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._tell, signal.Signals(number).name)

    def _tell(self, name: str) -> None:
        for on_signal in self.listeners.copy():
            on_signal(name)


_catchers: dict[asyncio.AbstractEventLoop, _Catcher] = {}


@contextmanager
def caught_signals(on_signal: OnSignal) -> Iterator[None]:
    """Call `on_signal` with the signal's name while inside; what was there before is restored behind it."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        raise InvalidArgument("handle_signals is True outside of the main thread, where signals cannot be handled")
    catcher = _catchers.get(loop)
    if catcher is None:
        catcher = _catchers[loop] = _Catcher(loop)
        catcher.catch()
    catcher.listeners.append(on_signal)
    try:
        yield
    finally:
        catcher.listeners.remove(on_signal)
        if not catcher.listeners:
            del _catchers[loop]
            catcher.restore()


def _let_go() -> None:
    """In a child that was forked: its signals are not ours."""
    for catcher in _catchers.values():
        catcher.restore()
    _catchers.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing is forked
    os.register_at_fork(after_in_child=_let_go)
