"""PortalLoop: the event loop of a Portal, which its callers run in turn, also while the interpreter exits."""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class PortalLoop(asyncio.SelectorEventLoop):
    """A plain selector loop; never uvloop, which cannot be run by several threads in turn."""

    def __init__(self, on_signal: Callable[[], None]) -> None:
        self._is_left = False
        self._poller = selectors.DefaultSelector()
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

    def leave_to_parent(self) -> None:
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
