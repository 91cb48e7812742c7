"""Lifecycle: a program that runs until it is closed, as Worker and the standalone Promoter and Scheduler."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Self

from .._core.checks import check_bool
from .._redis.connector import Connector
from ..errors import Closed
from .signals import catching_signals
from .task_loops import belongs_to_running_loop, has_ended_or_lost_its_loop, refuse_other_loop


class Lifecycle:
    """`await run()` until it is closed, or `async with` beside other things.

    It lives once: _start_main_unless_running() -> _run_until_stopped() in a task of its own -> ended. run() and
    `async with` raise the error that ends it.
    """

    def __init__(self, kind: str, queue_name: str, connector: Connector) -> None:
        self._kind = kind
        self._queue_name = queue_name
        self._connector = connector
        self._main: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._stop_wanted = asyncio.Event()
        self._death: BaseException | None = None
        self._is_closed = False
        self._stopped_by = ""  # a signal, or a cancellation; "": the program has closed it

    @property
    def queue_name(self) -> str:
        return self._queue_name

    @property
    def redis_address(self) -> str:
        """Where Redis is: the URL without its password."""
        return str(self._connector)

    @property
    def is_running(self) -> bool:
        return self._main is not None and not has_ended_or_lost_its_loop(self._main)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def run(self, *, handle_signals: bool = False) -> None:
        """Runs until close(). A second call waits for the first; to cancel it closes, and waits for that.

        handle_signals  whether SIGINT and SIGTERM close it, too, in place of what the program does about them; a second
                        one ends a worker at once. Only in the main thread. What was there before is restored behind it.
        """
        check_bool("handle_signals", handle_signals)
        with catching_signals(self._request_stop_by_signal) if handle_signals else nullcontext():
            main = self._start_main_unless_running()
            try:
                await asyncio.shield(main)
            except asyncio.CancelledError:
                self._stopped_by = self._stopped_by or "run() is cancelled"  # as by Ctrl-C, if no handler catches it
                await self.close()
                raise

    async def close(self) -> None:
        """Takes on nothing more, finishes what is under way, and closes all connections. Safe to call twice."""
        main = self._main if self.is_running else None
        if main is not None:
            refuse_other_loop(main, self._label)
            self._stop_wanted.set()
        self._is_closed = True
        if main is not None and not self._is_own_task(asyncio.current_task()):
            await asyncio.wait({main})

    def shutdown(self) -> None:
        """Asks for the end without waiting for it; close() waits. run() returns when it has come. From any thread."""
        self._is_closed = True
        if self._main is None or has_ended_or_lost_its_loop(self._main):
            return
        if belongs_to_running_loop(self._main):
            self._stop_wanted.set()
        else:
            with suppress(RuntimeError):  # the loop is closed meanwhile
                self._main.get_loop().call_soon_threadsafe(self._stop_wanted.set)

    async def wait_until_started(self) -> bool:
        """Starts it, unless run() has, and waits until it works; False if it is closed before. Raises what ends it."""
        main = self._start_main_unless_running()
        assert self._started is not None
        await asyncio.wait({main, self._started}, return_when=asyncio.FIRST_COMPLETED)
        if main.done():
            main.result()
        return self._started.done()

    async def __aenter__(self) -> Self:
        try:
            await self.wait_until_started()
        except asyncio.CancelledError:
            await self.close()  # no __aexit__ follows, and nobody else would
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if self._main is not None and error is None:
            self._main.result()

    def _start_main_unless_running(self) -> asyncio.Task[None]:
        if self._main is None:
            if self._is_closed:
                raise Closed(f"{self._label} is closed; make a new one")
            self._started = asyncio.get_running_loop().create_future()
            self._main = asyncio.create_task(
                self._run_clean_up_and_raise_death(), name=f"chasqui {self._kind} {self.queue_name}"
            )
        elif not self.is_running:
            raise Closed(f"{self._label} has ended; make a new one")
        refuse_other_loop(self._main, self._label)
        return self._main

    @property
    def _label(self) -> str:
        return f"{self._kind} of queue {self.queue_name!r}"

    async def _run_clean_up_and_raise_death(self) -> None:
        try:
            await self._run_until_stopped()
        finally:
            self._is_closed = True
            self._connector.leave_embedded_server_and_stop_logging()
        if self._death is not None:
            raise self._death

    async def _run_until_stopped(self) -> None:
        """Starts, calls _report_started(), waits for _stop_wanted, and stops."""
        raise NotImplementedError

    def _report_started(self) -> None:
        assert self._started is not None
        self._started.set_result(None)

    def _request_stop_with_error(self, error: BaseException) -> None:
        """Stops, and has run() raise this error."""
        self._death = self._death or error
        self._stop_wanted.set()

    def _request_stop_by_signal(self, signal_name: str) -> None:
        self._stopped_by = self._stopped_by or signal_name
        self._stop_wanted.set()

    def _is_own_task(self, task: asyncio.Task[object] | None) -> bool:
        """Returns whether it is a part of this program, which must not wait for the program's end."""
        return False
