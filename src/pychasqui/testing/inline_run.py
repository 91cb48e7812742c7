"""InlineRun: one run of a job in a test, with what a worker gives it: progress, a log, a time limit, cancelling."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Iterator
from time import monotonic
from typing import Any, NamedTuple

from .._core.run_timeouts import RunTimeouts
from .._worker.job_stops import JobStops
from .recorder import RecordedJob


class RunEnd(NamedTuple):
    """How a run has ended: by an error, as cancelled, or else with a result."""

    result: Any = None
    error: BaseException | None = None
    is_cancelled: bool = False


class InlineRun:
    """finish() runs the task; it has the worker's part in a Job. A timeout is of real time, not of the test's clock."""

    def __init__(self, job: RecordedJob, timeouts: RunTimeouts) -> None:
        self.stops = JobStops(timeouts)
        self._job = job
        self._delivery = job.to_delivery()
        if self._delivery.timeout_s:
            self.stops.shorten_check_interval(self._delivery.timeout_s)
        self._task: asyncio.Task[Any] | None = None

    def progress(self, job_id: str, job_name: str, percent: int, extras: object) -> AlreadyAwaited:
        self._job.report_progress(percent)
        return AlreadyAwaited()

    def log(self, job_id: str, line: str) -> AlreadyAwaited:
        self._job.log.append(line)
        return AlreadyAwaited()

    async def finish(self, coroutine: Coroutine[Any, Any, Any]) -> RunEnd:
        """Runs the task to its end, whatever it raises. Raises only if the test itself is cancelled."""
        began = monotonic()
        ending = _run_and_keep_error(coroutine)  # a SystemExit that a task of the loop raises would end the loop
        task = self._task = asyncio.get_running_loop().create_task(ending, context=contextvars.copy_context())
        self._job.begin_run(self._cancel)
        try:
            while not task.done():
                timeout_s = self.stops.total_timeout_s_of(self._delivery)
                is_stopped = self.stops.find_stop(self._delivery) is not None
                left_s = None if timeout_s is None or is_stopped else began + timeout_s - monotonic()
                if left_s is not None and left_s <= 0:
                    self.stops.add_stop(self._delivery, timeout_s)
                    task.cancel()
                await asyncio.wait({task}, timeout=None if is_stopped else left_s)
        except BaseException:
            task.cancel()
            raise
        finally:
            self._job.begin_run(None)
        return self._judge_stopped_run(RunEnd(error=asyncio.CancelledError()) if task.cancelled() else task.result())

    def _judge_stopped_run(self, end: RunEnd) -> RunEnd:
        if end.error is None or (stop := self.stops.pop_stop(self._delivery)) is None:
            return end
        if stop.is_for_cancelled_job:
            return RunEnd(is_cancelled=True)
        return RunEnd(error=stop.choose_error_for_timed_out_run(end.error))

    def _cancel(self) -> None:
        self.stops.add_stop(self._delivery, None)
        if self._task is not None:
            self._task.cancel()


class AlreadyAwaited:
    """An awaitable that is done at once."""

    def __await__(self) -> Iterator[None]:
        return iter(())


async def _run_and_keep_error(coroutine: Coroutine[Any, Any, Any]) -> RunEnd:
    try:
        return RunEnd(await coroutine)
    except BaseException as error:  # noqa: BLE001  a task may raise anything
        return RunEnd(error=error)
