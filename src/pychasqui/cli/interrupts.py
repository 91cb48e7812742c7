"""What Ctrl-C does while modules are imported, and SIGTERM before a command handles it: they end the process at once.
While an export is written, SIGTERM removes its unfinished file first.

Python would raise KeyboardInterrupt in the middle of an import. That shows a traceback, or is lost if the interpreter
happens to call back from the import system, which ignores errors; then the command would go on. The system drops a
signal to process 1 of a container that has no handler: a worker that is stopped while it starts would run on, and be
killed with its jobs.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import _exit, getpid, kill, unlink
from types import FrameType


def install_sigterm_exit_if_process_1() -> None:
    """Has SIGTERM end process 1 of a container, as it ends any other process that does not handle it."""
    if getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with suppress(ValueError):  # not in the main thread, which alone gets signals
            signal.signal(signal.SIGTERM, _exit_at_signal)


def _exit_at_signal(number: int, _: FrameType | None) -> None:
    _exit(128 + number)


def let_ctrl_c_kill_process_unless_ignored() -> None:
    """Has Ctrl-C end the process without a word. A process that ignores Ctrl-C, as behind nohup, still does."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):
            signal.signal(signal.SIGINT, _exit_at_signal if getpid() == 1 else signal.SIG_DFL)


def let_ctrl_c_raise_again() -> None:
    """Undoes let_ctrl_c_kill_process_unless_ignored()."""
    if signal.getsignal(signal.SIGINT) in (signal.SIG_DFL, _exit_at_signal):
        with suppress(ValueError):
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ctrl_c_kills_process() -> Iterator[None]:
    """Has Ctrl-C end the process while the block imports modules. Nothing may be held there that needs cleaning up."""
    let_ctrl_c_kill_process_unless_ignored()
    try:
        yield
    finally:
        let_ctrl_c_raise_again()


@contextmanager
def removing_file_at_sigterm(path: str) -> Iterator[None]:
    """Has SIGTERM, and the hangup of a terminal, remove a file of the block before they end the process."""

    def remove_file_and_end_process(number: int, _: FrameType | None) -> None:
        with suppress(OSError):
            unlink(path)
        signal.signal(number, signal.SIG_DFL)
        kill(getpid(), number)
        _exit(128 + number)  # process 1 of a container, to which the system does not send it

    replaced = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in (signal.SIG_DFL, _exit_at_signal):
            with suppress(ValueError):  # not in the main thread, which alone gets signals
                replaced[number] = signal.signal(number, remove_file_and_end_process)
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
