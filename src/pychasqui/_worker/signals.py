"""Catches SIGINT and SIGTERM for the workers of an event loop; each of them gets each signal.

Signals are caught by signal.signal() and not by the event loop: a loop learns of signals through a pipe that forked
children inherit, so a signal to a child would arrive here. A forked child gets back the handlers that were installed
before. Python forgets what a child was sent before os.fork() returns there, so the signals wait until after that.
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
    """Catches the signals for one loop, from its first listener to its last."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.listeners: list[OnSignal] = []
        self._loop = loop
        self._before: dict[signal.Signals, Any] = {}

    def install_handlers(self) -> None:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._call_listeners_in_loop)

    def restore_handlers_still_installed(self) -> None:
        """Installs the previous handlers again, unless other code has installed its own meanwhile."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._call_listeners_in_loop:
                signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before.clear()

    def _call_listeners_in_loop(self, number: int, _: FrameType | None) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._call_listeners, signal.Signals(number).name)

    def _call_listeners(self, name: str) -> None:
        for on_signal in self.listeners.copy():
            on_signal(name)


_catchers: dict[asyncio.AbstractEventLoop, _Catcher] = {}


@contextmanager
def catching_signals(on_signal: OnSignal) -> Iterator[None]:
    """Calls `on_signal` with the name of each signal while inside; restores the previous handlers at the end."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        raise InvalidArgument("handle_signals is True outside of the main thread; Python handles signals only there")
    catcher = _catchers.get(loop)
    if catcher is None:
        catcher = _catchers[loop] = _Catcher(loop)
        catcher.install_handlers()
    catcher.listeners.append(on_signal)
    try:
        yield
    finally:
        catcher.listeners.remove(on_signal)
        if not catcher.listeners:
            del _catchers[loop]
            catcher.restore_handlers_still_installed()


class _Forking(threading.local):
    """Keeps the signals of this thread blocked while it forks."""

    before: set[int] | None = None  # the signals that were blocked already, while a fork is under way

    def block_signals_if_caught(self) -> None:
        if _catchers:
            self.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def restore_blocked_signals(self) -> None:
        if self.before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.before)
            self.before = None


_forking = _Forking()


def _restore_signals_in_child() -> None:
    """Runs in a forked child, whose signals are not for the parent's workers."""
    for catcher in _catchers.values():
        catcher.restore_handlers_still_installed()
    _catchers.clear()
    _forking.restore_blocked_signals()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing is forked
    os.register_at_fork(
        before=_forking.block_signals_if_caught,
        after_in_parent=_forking.restore_blocked_signals,
        after_in_child=_restore_signals_in_child,
    )
