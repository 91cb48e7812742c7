"""Reads standard input, or a file, so that Ctrl-C ends the read whenever it comes.

Python calls the handler of a signal between two steps of Python code. One that comes between the last step and the
system call read() would be heeded once that returns: on a terminal when somebody types a line. So a read begins when
there is something to read. Until then select() waits, also for the byte that each signal leaves in a pipe.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


@contextmanager
def ctrl_c_ends_reads() -> Iterator[None]:
    """Makes Ctrl-C end a read of standard input: an event loop would only note it, and wait for the line."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _raise_if_ctrl_c_came_before()
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _raise_if_ctrl_c_came_before() -> None:
    """The event loop has noted Ctrl-C, and would end the command at its next await: behind the read."""
    import asyncio  # here, so that --help does not wait for the import

    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs
        return
    if task is not None and task.cancelling():
        raise KeyboardInterrupt


def open_interruptible_if_possible(source: TextIO) -> TextIO:
    """Opens what has not been read from `source` yet, whose buffer has to be empty; closing it leaves `source` open."""
    if sys.platform == "win32":  # select() knows only sockets there
        return source
    try:
        raw = InterruptibleFile(source.fileno(), "rb", closefd=False)
    except OSError:  # a stream that is no file
        return source
    return io.TextIOWrapper(io.BufferedReader(raw), encoding=source.encoding, errors=source.errors, newline="\n")


class InterruptibleFile(io.FileIO):
    def readinto(self, buffer: Any, /) -> int:
        """Reads what is there, once there is something; returns 0 at the end."""
        while True:
            wait_until_readable(self.fileno())
            count: int | None = super().readinto(buffer)
            if count is not None:  # None: another process was faster, on a terminal that does not block
                return count


def wait_until_readable(fd: int) -> None:
    """Waits until a read would not wait. The handler of a signal that comes meanwhile may raise."""
    if fd in _wait_for_readable(fd, timeout_s=0.0):
        return
    woken, waker = os.pipe()
    try:
        os.set_blocking(waker, False)
        before = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        try:
            while fd not in _wait_for_readable(fd, woken):  # its call runs the handler of a signal that came before
                os.read(woken, select.PIPE_BUF)
        finally:
            signal.set_wakeup_fd(before)
    finally:
        os.close(woken)
        os.close(waker)


def _wait_for_readable(*fds: int, timeout_s: float | None = None) -> list[int]:
    return select.select(fds, [], [], timeout_s)[0]
