"""What Ctrl-C does while modules are imported: it ends the process at once.

Python would raise KeyboardInterrupt in the middle of an import. That shows a traceback, or is lost if the interpreter
happens to call back from the import system, which ignores errors; then the command would go on.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def let_ctrl_c_kill_process() -> None:
    """Has Ctrl-C end the process without a word. A process that ignores Ctrl-C, as behind nohup, still does."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # not in the main thread, which alone gets signals
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_at_ctrl_c() -> None:
    """Undoes let_ctrl_c_kill_process()."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        with suppress(ValueError):
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ctrl_c_kills_process() -> Iterator[None]:
    """Has Ctrl-C end the process while the block imports modules. Nothing may be held there that needs cleaning up."""
    let_ctrl_c_kill_process()
    try:
        yield
    finally:
        raise_at_ctrl_c()
