"""InlineRun: one run of a job in a test, with what a worker gives it: progress, a log, a time limit, cancelling."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Iterator
from time import monotonic
from typing import Any

from .._core.run_timeouts import RunTimeouts
from .._worker.job_stops import JobStops
from ..errors import JobCancelled
from .recorder import RecordedJob


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

    async def finish(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Returns what the task returns. Raises its error, JobTimeout or JobCancelled."""
        began = monotonic()
        task = self._task = asyncio.get_running_loop().create_task(coroutine, context=contextvars.copy_context())
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
            return task.result()
        except BaseException as error:
            stop = self.stops.pop_stop(self._delivery)
            if stop is None:
                task.cancel()  # the test itself is cancelled
                raise
            raise (
                JobCancelled(f"job {self._job.id[:100]!r} was cancelled")
                if stop.is_for_cancelled_job
                else (stop.choose_error_for_timed_out_run(error))
            ) from None
        finally:
            self._job.begin_run(None)

    def _cancel(self) -> None:
        self.stops.add_stop(self._delivery, None)
        if self._task is not None:
            self._task.cancel()


class AlreadyAwaited:
    """An awaitable that is done at once."""

    def __await__(self) -> Iterator[None]:
        return iter(())
