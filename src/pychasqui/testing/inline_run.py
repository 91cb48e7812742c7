"""InlineRun: one run of a job in a test, with what a worker gives it: progress, a log, a time limit, cancelling."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Iterator
from time import monotonic
from typing import Any, NamedTuple

from .._core.delivery import Delivery
from .._core.run_timeouts import RunTimeouts
from .._worker.job_stops import JobStops
from .recorder import RecordedJob


class RunEnd(NamedTuple):
    """How a run has ended: by an error, as cancelled, or else with a result."""

    result: Any = None
    error: BaseException | None = None
    is_cancelled: bool = False


class InlineRun:
    """run_to_end() runs the task; it has the worker's part in a Job. A timeout is of real time, not of the clock of the
    test."""

    def __init__(self, job: RecordedJob, timeouts: RunTimeouts) -> None:
        self._job = job
        self._delivery = job.to_delivery()
        self.stops = InlineStops(timeouts, self._delivery)
        if self._delivery.timeout_s:
            self.stops.note_timeout_and_signal_if_shortest(self._delivery.timeout_s)
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False

    def report_or_drop_progress(self, job_id: str, job_name: str, percent: int, extras: object) -> DoneAwaitable:
        self._job.report_progress(percent)
        return DoneAwaitable()

    def report_or_drop_log_line(self, job_id: str, line: str) -> DoneAwaitable:
        self._job.log.append(line)
        return DoneAwaitable()

    async def run_to_end(self, coroutine: Coroutine[Any, Any, Any]) -> RunEnd:
        """Runs the task to its end, whatever it raises. Raises only if the test itself is cancelled."""
        self.stops.start_timeout()
        ending = _run_and_keep_error(coroutine)  # a SystemExit that a task of the loop raises would end the loop
        task = self._task = asyncio.get_running_loop().create_task(ending, context=contextvars.copy_context())
        self._job.begin_run(self._cancel_run_of_cancelled_job)
        try:
            while not task.done():
                if not self._is_cancelled and self.stops.is_asked_to_stop(self._delivery.entry_id):
                    self._mark_and_cancel_task(task)
                await asyncio.wait({task}, timeout=self.stops.left_s)
        except BaseException:
            task.cancel()
            raise
        finally:
            self._job.end_run()
        return self._replace_error_by_stop_if_any(
            RunEnd(error=asyncio.CancelledError()) if task.cancelled() else task.result()
        )

    def _replace_error_by_stop_if_any(self, end: RunEnd) -> RunEnd:
        if end.error is None or (stop := self.stops.pop_stop(self._delivery)) is None:
            return end
        if stop.is_for_cancelled_job:
            return RunEnd(is_cancelled=True)
        return RunEnd(error=stop.choose_error_for_timed_out_run(end.error))

    def _cancel_run_of_cancelled_job(self) -> None:
        self.stops.add_stop(self._delivery, None)
        if self._task is not None:
            self._mark_and_cancel_task(self._task)

    def _mark_and_cancel_task(self, task: asyncio.Task[Any]) -> None:
        self._is_cancelled = True
        task.cancel()


class InlineStops(JobStops):
    """The stops of one run. A plain function runs in the loop of the test, where no look at its time comes between:
    it is asked to stop when it looks at job.is_cancelled after that."""

    def __init__(self, timeouts: RunTimeouts, job: Delivery) -> None:
        super().__init__(timeouts)
        self._job = job
        self._began_at = monotonic()

    def start_timeout(self) -> None:
        self._began_at = monotonic()

    @property
    def left_s(self) -> float | None:
        """How much of its time is left; None if it has no bound, or is to stop."""
        timeout_s = self.find_total_timeout_s(self._job)
        if timeout_s is None or self.find_stop(self._job) is not None:
            return None
        return max(self._began_at + timeout_s - monotonic(), 0)

    def is_asked_to_stop(self, entry_id: bytes) -> bool:
        self._add_stop_if_timed_out()
        return super().is_asked_to_stop(entry_id)

    def _add_stop_if_timed_out(self) -> None:
        if self.left_s == 0:
            self.add_stop(self._job, self.find_total_timeout_s(self._job))


class DoneAwaitable:
    """An awaitable that is done at once."""

    def __await__(self) -> Iterator[None]:
        return iter(())


async def _run_and_keep_error(coroutine: Coroutine[Any, Any, Any]) -> RunEnd:
    try:
        return RunEnd(await coroutine)
    except BaseException as error:  # noqa: BLE001  a task may raise anything
        return RunEnd(error=error)
