"""Crew: the workers of an app, one for each of its queues, which start and end together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from types import TracebackType
from typing import Any, Self

from ._core.checks import check_bool
from ._worker.signals import catching_signals
from ._worker.task_ends import wait_despite_cancellation
from ._worker.task_loops import has_ended_or_lost_its_loop, refuse_other_loop
from .errors import Closed
from .worker import Worker

log = logging.getLogger("chasqui.app")


class Crew:
    """`await crew.run()` until it is closed, or `async with crew:` beside other things. `App.worker()` makes it.

    start   starts what the workers share, and makes them; ends it behind them
    """

    def __init__(self, start: Callable[[], AbstractAsyncContextManager[Sequence[Worker]]]) -> None:
        self._prepare_workers = start
        self._workers: Sequence[Worker] = ()
        self._stop_wanted = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._is_preparing = False

    @property
    def workers(self) -> Sequence[Worker]:
        """Its workers, one for each queue, once it runs."""
        return self._workers

    @property
    def queue_names(self) -> list[str]:
        return [worker.queue_name for worker in self._workers]

    @property
    def is_running(self) -> bool:
        return self._main is not None and not has_ended_or_lost_its_loop(self._main)

    async def run(self, *, handle_signals: bool = False) -> None:
        """Runs jobs until close(); see Worker.run(). If one worker ends by an error, the others end, too."""
        check_bool("handle_signals", handle_signals)
        was_begun = self._main is not None  # its workers then handle signals only if they were asked to
        main = self._get_or_start_main_task(handle_signals)
        with catching_signals(self._request_stop_by_signal) if handle_signals and was_begun else nullcontext():
            try:
                await asyncio.shield(main)
            except asyncio.CancelledError:
                await self.close()
                raise

    async def close(self) -> None:
        """Closes all workers: they take on nothing more, and finish what runs. Safe to call twice.

        A task that closes its own crew does not wait for the end. A lifespan that has not yielded yet is cancelled.
        """
        task, main = asyncio.current_task(), self._main if self.is_running else None
        if main is not None:
            refuse_other_loop(main, "this crew")
        if main is not None or self._main is None:
            self._stop_wanted.set()
        if main is None or task is main or any(worker._is_own_task(task) for worker in self._workers):
            return
        if self._is_preparing:
            self._is_preparing = False
            main.cancel()  # a lifespan may wait for ever, as for a database that is away
        await asyncio.wait({main})

    async def __aenter__(self) -> Self:
        main = self._get_or_start_main_task(handle_signals=False)
        assert self._started is not None
        try:
            await asyncio.wait({main, self._started}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.close()  # no __aexit__ follows, and nobody else would
            raise
        if main.done():
            main.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if self._main is not None and error is None:
            self._main.result()

    def _get_or_start_main_task(self, handle_signals: bool) -> asyncio.Task[None]:
        if self._main is None:
            if self._stop_wanted.is_set():
                raise Closed("this crew is closed; app.worker() makes another")
            self._started = asyncio.get_running_loop().create_future()
            self._main = asyncio.create_task(self._run_until_stopped(handle_signals), name="chasqui crew")
        elif not self.is_running:
            raise Closed("this crew has ended; app.worker() makes another")
        refuse_other_loop(self._main, "this crew")
        return self._main

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[Sequence[Worker]]:
        """Starts what the workers share and makes them, for a program that runs them itself while inside."""
        async with self._prepare_workers() as self._workers:
            yield self._workers

    async def _run_until_stopped(self, handle_signals: bool) -> None:
        if self._stop_wanted.is_set():
            return
        self._is_preparing = True
        try:
            async with self.prepared():
                self._is_preparing = False
                await self._run_workers_until_stop_or_first_end(handle_signals)
        except asyncio.CancelledError:
            if not self._stop_wanted.is_set():
                raise

    async def _run_workers_until_stop_or_first_end(self, handle_signals: bool) -> None:
        runs = [asyncio.ensure_future(worker.run(handle_signals=handle_signals)) for worker in self._workers]
        # An error of a start is an error of that worker's run as well.
        starts = asyncio.gather(*(worker.wait_until_started() for worker in self._workers), return_exceptions=True)
        stop = asyncio.ensure_future(self._stop_wanted.wait())
        try:
            first_ends: set[asyncio.Future[Any]] = {starts, stop, *runs}
            await asyncio.wait(first_ends, return_when=asyncio.FIRST_COMPLETED)
            if starts.done() and all(has_started is True for has_started in starts.result()):
                assert self._started is not None
                self._started.set_result(None)
            await asyncio.wait({stop, *runs}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            for worker in self._workers:
                worker.shutdown()
            was_cancelled = await wait_despite_cancellation({starts, *runs})  # jobs need the lifespan to their end
            errors = [asyncio.CancelledError() if run.cancelled() else run.exception() for run in runs]
        if was_cancelled:
            raise asyncio.CancelledError
        for error in errors:
            if error is not None:
                raise error

    def _request_stop_by_signal(self, signal_name: str) -> None:
        self._stop_wanted.set()
        for worker in self._workers:
            worker._request_stop_by_signal(signal_name)
