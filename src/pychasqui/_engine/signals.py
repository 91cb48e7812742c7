"""SIGINT and SIGTERM, for workers that are run as a program. All workers of a loop hear each signal."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OnSignal = Callable[[str], None]
_listeners: dict[asyncio.AbstractEventLoop, list[OnSignal]] = {}


@contextmanager
def caught_signals(on_signal: OnSignal) -> Iterator[None]:
    """Call `on_signal` with the signal's name while inside. Does nothing where signals cannot be caught."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    listeners = _listeners.setdefault(loop, [])
    if not listeners:
        _catch(loop)
    listeners.append(on_signal)
    try:
        yield
    finally:
        listeners.remove(on_signal)
        if not listeners:
            del _listeners[loop]
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _catch(loop: asyncio.AbstractEventLoop) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, _tell, loop, number.name)
        except NotImplementedError:  # Windows
            return


def _tell(loop: asyncio.AbstractEventLoop, name: str) -> None:
    for on_signal in list(_listeners.get(loop, ())):
        on_signal(name)
