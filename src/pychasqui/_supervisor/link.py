"""The worker process's end of the socket to its supervisor, and the thread that watches it.

The supervisor passes the socket's descriptor in a variable of the environment, which goes before user code runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from .messages import Alive, Message, encode_message

VARIABLE = "CHASQUI_SUPERVISED_BY"
ALIVE_EVERY_S = 1.0
SEND_TIMEOUT_S = 1.0


class SupervisorLink:
    """find() -> start_watching() sends signs of life and notices the supervisor's end -> call_at_supervisor_end() sets
    what is called then.

    The thread of start_watching() does not need the event loop: a handler may block that for as long as it likes.
    """

    def __init__(self, own_end: socket.socket, *, folder: Path, serves_pages: bool) -> None:
        self.folder = folder  # of the Unix sockets
        self.serves_pages = serves_pages
        self._socket = own_end
        self._socket.settimeout(SEND_TIMEOUT_S)
        self._sending = threading.Lock()
        self._end: Callable[[], None] | None = None
        self._end_within_s = 0.0

    @classmethod
    def find(cls) -> SupervisorLink | None:
        """Returns the link of a process that a supervisor has started; None in any other process."""
        value = os.environ.pop(VARIABLE, None)
        if value is None:
            return None
        descriptor, serves_pages, folder = value.split(":", 2)
        own_end = socket.socket(fileno=int(descriptor))
        own_end.set_inheritable(False)  # a child of a handler must not keep it open
        return cls(own_end, folder=Path(folder), serves_pages=serves_pages == "1")

    def send(self, message: Message) -> None:
        """A supervisor that has ended gets nothing, and the thread of start_watching() notices that."""
        with self._sending, contextlib.suppress(OSError):
            self._socket.sendall(encode_message(message))

    def start_watching(self) -> None:
        threading.Thread(
            target=self._send_alive_until_supervisor_ends_then_exit, name="chasqui supervisor link", daemon=True
        ).start()

    def call_at_supervisor_end(self, on_end: Callable[[], None], within_s: float) -> None:
        """Has `on_end` called in the thread when the supervisor has ended. A process that still runs `within_s` later
        is ended at once, as is one that has not come to this call."""
        self._end, self._end_within_s = on_end, within_s

    def _send_alive_until_supervisor_ends_then_exit(self) -> None:
        while not self._has_supervisor_ended_within(timeout_s=ALIVE_EVERY_S):
            self.send(Alive())
        self._end_process_after_supervisor()

    def _end_process_after_supervisor(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._end is not None:
            self._end()
            time.sleep(self._end_within_s)
        os._exit(1)

    def _has_supervisor_ended_within(self, *, timeout_s: float) -> bool:
        """Returns whether the supervisor has ended."""
        readable, _, _ = select.select([self._socket], [], [], timeout_s)
        try:
            return bool(readable) and not self._socket.recv(4096)
        except OSError:
            return True
