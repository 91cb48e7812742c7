"""SIGINT and SIGTERM, for a worker that is run as a program."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def caught_signals(on_signal: Callable[[str], None]) -> Iterator[None]:
    """Call `on_signal` with the signal's name while inside. Does nothing where signals cannot be caught."""
    loop = asyncio.get_running_loop()
    caught: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, on_signal, number.name)
            except NotImplementedError:  # Windows
                break
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
