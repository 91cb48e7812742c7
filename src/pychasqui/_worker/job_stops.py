"""JobStops: which running jobs are to stop, why, and when the time of a run is over.

A value that several parts share. The RunWatch decides that a job is to stop, the job itself sees it by
`job.is_cancelled`, and the FailureHandler asks why a run has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from .._core.delivery import Delivery
from .._core.run_timeouts import RunTimeouts
from .._redis.cancellations import Cancellations
from ..errors import JobTimeout, RetryLater, Snooze, UnrecoverableError
from .shared import Signal


class StopRequest:
    """A job that is to stop: which run of it, and how often its handler was cancelled so far."""

    def __init__(self, job: Delivery, timeout_s: float | None) -> None:
        self.job = job
        self.timeout_s = timeout_s  # None: the job is cancelled
        self.cancellations = 0
        self.again_at = 0.0  # monotonic
        self.is_given_up = False

    def count_cancellation_and_set_next_at(self, again_at: float) -> None:
        self.cancellations += 1
        self.again_at = again_at

    def give_up(self) -> None:
        """The handler goes on all the same: it is not cancelled again."""
        self.is_given_up, self.again_at = True, float("inf")

    @property
    def is_for_cancelled_job(self) -> bool:
        return self.timeout_s is None

    def choose_error_for_timed_out_run(self, raised: BaseException) -> BaseException:
        """Returns the error of a run that took too long.

        By an error of its own a handler may still ask for a later run, or for none.
        """
        kind = type(raised)
        if issubclass(kind, (UnrecoverableError, RetryLater, Snooze)):
            return raised
        error = JobTimeout(f"the run took longer than its timeout of {self.timeout_s:g} s, and was stopped")
        if not issubclass(kind, asyncio.CancelledError):
            error.__cause__ = raised
        return error.with_traceback(BaseException.__dict__["__traceback__"].__get__(raised))


class JobStops:
    """Belongs to the worker's loop.

    is_asked_to_stop() and extend_timeout_if_any_is_set() are also called from handlers' threads.
    """

    def __init__(self, timeouts: RunTimeouts) -> None:
        self.shortest_timeout_s = timeouts.shortest_timeout_s or float("inf")  # of the timeouts that are known
        self.shorter_timeout_known = Signal()  # a timeout is shorter than those before it
        self.cancellations: Cancellations | None = None  # the notes of this queue, if there are any
        self._timeouts = timeouts
        self._stops: dict[bytes, StopRequest] = {}  # by entry
        self._extensions: dict[bytes, float] = {}  # seconds that were added to the time of a run, by entry

    def note_timeout_and_signal_if_shortest(self, timeout_s: float) -> None:
        """A job with a time of its own has come: the next look must not be later than that."""
        if timeout_s < self.shortest_timeout_s:
            self.shortest_timeout_s = timeout_s
            self.shorter_timeout_known.send()

    def reset_shortest_timeout(self) -> None:
        """No job with a time of its own is left."""
        self.shortest_timeout_s = self._timeouts.shortest_timeout_s or float("inf")

    def find_total_timeout_s(self, job: Delivery) -> float | None:
        """Returns how long this run may take in all; None if it has no bound."""
        timeout_s = job.timeout_s or self._timeouts.find_timeout_s(job.name)
        return None if timeout_s is None else timeout_s + self._extensions.get(job.entry_id, 0.0)

    def extend_timeout_if_any_is_set(self, entry_id: bytes, span_s: float) -> None:
        if self.shortest_timeout_s == float("inf"):
            return  # no run has a timeout, and without one nobody looks which runs have ended
        self._extensions[entry_id] = self._extensions.get(entry_id, 0.0) + span_s

    def is_asked_to_stop(self, entry_id: bytes) -> bool:
        return entry_id in self._stops

    def find_timeout_error(self, entry_id: bytes, raised: BaseException) -> BaseException | None:
        """Returns the error of a run whose time is over, once it has raised; None if its time is not over."""
        stop = self._stops.get(entry_id)
        return None if stop is None or stop.is_for_cancelled_job else stop.choose_error_for_timed_out_run(raised)

    def find_stop(self, job: Delivery) -> StopRequest | None:
        stop = self._stops.get(job.entry_id)
        return stop if stop is not None and stop.job is job else None

    def set_cancellations(self, cancellations: Cancellations) -> None:
        self.cancellations = cancellations or None

    def add_stop(self, job: Delivery, exceeded_timeout_s: float | None) -> StopRequest:
        """Notes that a run is to stop: its time is over, or with None its job is cancelled."""
        stop = self._stops[job.entry_id] = StopRequest(job, exceeded_timeout_s)
        return stop

    def pop_stop(self, job: Delivery) -> StopRequest | None:
        """The run has ended by an error: returns why it was to stop, and forgets it."""
        stop = self.find_stop(job)
        if stop is not None:
            del self._stops[job.entry_id]
        return stop

    def forget_ended_runs(self, running: Iterable[Delivery]) -> None:
        """Forgets the runs that have ended."""
        kept = {job.entry_id: job for job in running}
        for entry_id in [one for one, stop in self._stops.items() if kept.get(one) is not stop.job]:
            del self._stops[entry_id]
        for entry_id in self._extensions.keys() - kept.keys():
            del self._extensions[entry_id]
