"""A worker process as its supervisor sees it: starts it, reads its messages, signals it, and knows how it ended."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .._core import clock
from ..errors import DecodeError
from .link import VARIABLE
from .messages import MAX_LINE_BYTES, HeldLease, LeaseTaken, Loaded, Message, Started, SuccessorRequest, decode_message

log = logging.getLogger("chasqui.supervisor")


class ChildProcess:
    """start() -> loaded -> started -> ended. The first two may never come.

    A process has a group of its own: Ctrl-C on a terminal reaches the supervisor alone, which decides what follows.
    """

    def __init__(
        self,
        on_message: Callable[[ChildProcess, Message], None],
        on_end: Callable[[ChildProcess], None],
    ) -> None:
        self.pid = 0
        self.started: Started | None = None
        self.leases: list[HeldLease] = []  # of its workers, also before all of them have started
        self.is_loaded = False
        self.shutdown_deadline_s = 0.0  # how long its workers let jobs finish
        self.successor_request: SuccessorRequest | None = None
        self.started_at = 0.0  # monotonic
        self.last_message_at = clock.monotonic()  # when it last sent anything
        self.asked_to_end_at: float | None = None  # monotonic; None while it is to run
        self.was_killed = False
        self._on_message = on_message
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._exit_code: int | None = None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; the negative number of the signal that ended it."""
        return self._exit_code

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._exit_code is None

    async def start(
        self, command: Sequence[str], environment: Mapping[str, str], *, folder: Path, serves_pages: bool
    ) -> None:
        own_end, its_end = socket.socketpair()
        with its_end:
            variable = {VARIABLE: f"{its_end.fileno()}:{int(serves_pages)}:{folder}"}
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    env={**environment, **variable},
                    stdin=asyncio.subprocess.DEVNULL,  # the terminal stops one of another group that reads from it
                    pass_fds=(its_end.fileno(),),
                    process_group=0,
                )
            except BaseException:
                own_end.close()
                raise
        self.pid = self._process.pid
        self.last_message_at = clock.monotonic()
        reader, writer = await asyncio.open_connection(sock=own_end, limit=MAX_LINE_BYTES)
        self._watching = asyncio.create_task(self._watch_until_exit_and_notify(reader, writer))

    async def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Waits until something about the process has changed so that this is true."""
        while not is_true():
            self._changed.clear()
            await self._changed.wait()

    async def wait_for_exit(self) -> int:
        await self.wait_until(lambda: self._exit_code is not None)
        assert self._exit_code is not None
        return self._exit_code

    @property
    def was_asked_to_end(self) -> bool:
        """Whether it was to end."""
        return self.asked_to_end_at is not None

    def exclude_lost_time(self, lost_s: float) -> None:
        """Leaves out a time in which it could neither say nor do anything."""
        self.last_message_at = min(self.last_message_at + lost_s, clock.monotonic())
        if self.asked_to_end_at is not None:
            self.asked_to_end_at = min(self.asked_to_end_at + lost_s, clock.monotonic())

    def ask_to_end(self) -> None:
        """Asks it to drain; asked again, it ends at once."""
        if self.asked_to_end_at is None:
            self.asked_to_end_at = clock.monotonic()
        self._send_signal_if_running(signal.SIGTERM)

    def kill(self) -> None:
        self.was_killed = True
        self._send_signal_if_running(signal.SIGKILL)

    def _send_signal_if_running(self, number: signal.Signals) -> None:
        if self._process is not None and self._exit_code is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _watch_until_exit_and_notify(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._process is not None
        reading = asyncio.create_task(self._read_messages_or_kill_process(reader))
        code = await self._process.wait()
        # A handler's own child may hold nothing of ours open, but a message may still be on its way.
        await asyncio.wait({reading}, timeout=0.1)
        reading.cancel()
        await asyncio.wait({reading})
        writer.close()
        self._exit_code = code
        try:
            self._on_end(self)
        except Exception:  # those that wait for the end go on all the same
            log.exception("what follows the end of process %d has failed", self.pid)
        finally:
            self._changed.set()

    async def _read_messages_or_kill_process(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self.last_message_at = clock.monotonic()
                self._store_message_and_notify(decode_message(line))
        except (OSError, ValueError, DecodeError) as error:  # a line without an end is a ValueError
            log.error("process %d is not understood, and ends: %s", self.pid, error)
            self._send_signal_if_running(signal.SIGKILL)

    def _store_message_and_notify(self, message: Message) -> None:
        if isinstance(message, Loaded):
            self.is_loaded, self.shutdown_deadline_s = True, message.shutdown_deadline_s
        elif isinstance(message, LeaseTaken):
            self.leases.append(message.lease)
        elif isinstance(message, Started):
            self.started, self.started_at = message, clock.monotonic()
        elif isinstance(message, SuccessorRequest):
            self.successor_request = message
        self._on_message(self, message)
        self._changed.set()


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"has ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"


def make_child_environment() -> dict[str, str]:
    """The environment of a worker process: ours, without what is meant for the supervisor alone."""
    own = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", VARIABLE)
    return {name: value for name, value in os.environ.items() if name not in own}
