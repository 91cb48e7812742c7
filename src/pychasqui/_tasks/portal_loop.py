"""PortalLoop: the event loop of a Portal, which its callers run in turn, also while the interpreter exits."""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MOST_SKIPS = 3


class _Poller(selectors.DefaultSelector):
    """Asks the system less often: not in each turn of the loop that has something to run already.

    hot: 2 us a question, and each lets go of the GIL: with sixteen threads another takes it
    """

    def __init__(self) -> None:
        super().__init__()
        self._skips = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 and self._skips < MOST_SKIPS:
            self._skips += 1
            return []
        self._skips = 0
        return super().select(timeout)

    def poll_in_next_turn(self) -> None:
        self._skips = MOST_SKIPS


class PortalLoop(asyncio.SelectorEventLoop):
    """A plain selector loop; never uvloop, which cannot be run by several threads in turn."""

    _is_left = False

    def __init__(self, on_signal: Callable[[], None]) -> None:
        self._poller = _Poller()
        super().__init__(self._poller)
        self._on_signal = on_signal
        self._signals, self._signals_in = socket.socketpair()
        self._signals.setblocking(False)
        self._signals_in.setblocking(False)
        self.add_reader(self._signals, self._read_signals)

    @property
    def wakeup_fd(self) -> int:
        """For signal.set_wakeup_fd(): the system may interrupt another thread than the one that runs handlers."""
        return self._signals_in.fileno()

    def _read_signals(self) -> None:
        with suppress(BlockingIOError):
            self._signals.recv(4096)
        self._on_signal()

    def run_one_turn(self) -> None:
        """Runs one turn: reads what has come while nobody ran the loop, such as the end of a connection."""
        self._poller.poll_in_next_turn()
        self.call_soon(self.stop)
        self.run_forever()

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
        self._is_left = True
        if hasattr(self._poller, "fileno"):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, self._poller.fileno(), inheritable=False)
            os.close(null)

    def __del__(self) -> None:
        if not self._is_left:
            super().__del__()
