"""JobRecorder: the jobs that were added in a test, and a clock of their own. Nothing is sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .._core.delivery import Delivery
from .._core.failure import Failure
from .._core.outcome import CANCELLED
from .._core.retry_options import RetryOverride
from .._producer.encoder import EncodedJob
from .._redis.replies import DUPLICATE, NEW, REPLACED
from .._wire.envelope import PUT_BACKS, SNOOZES, decode_envelope, encode_extras, read_timeout_s_or_zero
from .._wire.msgpack import decode_data
from ..job import SCHEDULED_AT


@dataclass
class RecordedJob:
    """A job that was added in a test.

    id, name, queue   as they would be sent
    data              what a worker would get: it has gone through MessagePack
    options           the options of Queue.add that were given
    due_ms            when it is due, by the clock of the test
    state             "waiting", "done", "dead" or "cancelled"; a job that waits for its time or its next run is waiting
    attempt           earlier runs that failed
    """

    id: str
    name: str
    queue: str
    payload: bytes
    options: dict[str, Any]
    due_ms: int
    retry: RetryOverride | None
    created_at_ms: int
    unique_until_ms: int | None  # None until it is done, 0 not at all
    timeout_s: float = 0.0
    expires_ms: int | None = None  # by the clock of the test
    stop: Callable[[], None] | None = field(default=None, repr=False)  # while it runs: cancels the run
    state: str = "waiting"
    attempt: int = 0
    snoozes: int = 0
    put_backs: int = 0  # because no task has its name
    scheduled_at_ms: int | None = None  # if a schedule has fired it: the time for which it did
    result: Any = None
    why_not_stored: str = ""  # of a job that is done, and whose result cannot be stored
    error: BaseException | None = None
    reason: str = ""
    progress: int | None = None
    log: list[str] = field(default_factory=list)

    @property
    def data(self) -> Any:
        return decode_data(self.payload)

    @property
    def extras(self) -> bytes:
        counted = {SNOOZES: self.snoozes, PUT_BACKS: self.put_backs, SCHEDULED_AT: self.scheduled_at_ms}
        known = {name: value for name, value in counted.items() if value}
        return encode_extras(**known) if known else b""

    @property
    def can_be_replaced(self) -> bool:
        """Whether it has not been handed to a worker, or waits for its next run."""
        return self.state == "waiting" and self.stop is None

    def cancel(self) -> str:
        """Returns what Queue.cancel() would answer."""
        if self.state != "waiting":
            return "unknown"
        if self.stop is not None:
            self.stop()
            return "stopping"
        self.state = "cancelled"
        return "removed"

    def end_as(self, reason: str, error: BaseException | None) -> None:
        """The job ends without a result: it is cancelled, or dead for this reason."""
        self.state = reason if reason == CANCELLED else "dead"
        self.reason, self.error = reason, error

    def end_as_done(self, encoded_result: bytes | None, why_not_stored: str) -> None:
        self.state, self.why_not_stored = "done", why_not_stored
        self.result = None if encoded_result is None else decode_data(encoded_result)

    def wait_for_next_run(self, due_ms: int, failure: Failure, uses_up_attempt: bool) -> None:
        """A run has failed, and another one follows."""
        self.due_ms, self.error = due_ms, failure.error
        if uses_up_attempt:
            self.attempt += 1
        elif failure.is_unknown_task:
            self.put_backs += 1
        else:
            self.snoozes, self.put_backs = self.snoozes + 1, 0

    def note_scheduled_time(self, scheduled_at_ms: int) -> None:
        """A schedule has fired it, for this time."""
        self.scheduled_at_ms = scheduled_at_ms

    def begin_run(self, stop: Callable[[], None]) -> None:
        """A run of the job begins, which this stops."""
        self.stop = stop

    def end_run(self) -> None:
        """The run has ended: there is none to stop."""
        self.stop = None

    def report_progress(self, percent: int) -> None:
        self.progress = percent

    def to_delivery(self) -> Delivery:
        """The job as production's own functions take it."""
        own = (self.id, self.payload, self.created_at_ms, self.attempt, self.retry, self.name)
        return Delivery(*own, timeout_s=self.timeout_s)


class JobRecorder:
    """record_or_replace_unless_duplicate() keeps a job, or what is left of it if one of its id is there; advance_to()
    moves the clock."""

    def __init__(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        self.jobs: list[RecordedJob] = []
        self._waiting: dict[int, RecordedJob] = {}  # by id(), in their order; with those that ended since the last look

    def record_or_replace_unless_duplicate(
        self, queue: str, name: str, encoded: EncodedJob, options: dict[str, Any]
    ) -> str:
        """Returns what the script of a server would answer: NEW, DUPLICATE or REPLACED."""
        envelope = decode_envelope(encoded.envelope)
        due_ms = self._read_due_ms(encoded.options.due)
        only, window_ms = encoded.options.only, encoded.options.window_ms
        there = self._find_job_holding_id(queue, encoded.id) if only else None
        if there is not None:
            if only == "keep" or not there.can_be_replaced:
                return DUPLICATE
            due_ms = there.due_ms if only == "replace" else due_ms
            # In place, here and below: another thread may add a job meanwhile.
            del self.jobs[next(index for index, job in enumerate(self.jobs) if job is there)]
            del self._waiting[id(there)]
        unique_until_ms = (self.now_ms + window_ms if window_ms else None) if only else 0
        job = RecordedJob(
            encoded.id,
            name,
            queue,
            envelope.payload,
            options,
            due_ms,
            envelope.retry,
            encoded.created_at_ms,
            unique_until_ms,
            timeout_s=read_timeout_s_or_zero(envelope.extras),
            expires_ms=self.now_ms + expires_ms if (expires_ms := encoded.options.expires_ms) else None,
        )
        self.jobs.append(job)
        self._waiting[id(job)] = job
        return NEW if there is None else REPLACED

    def find_last_job(self, queue: str, job_id: str) -> RecordedJob | None:
        """Returns the last job of this id."""
        return next((job for job in reversed(self.jobs) if (job.queue, job.id) == (queue, job_id)), None)

    def find_next_due(self, until_ms: int) -> RecordedJob | None:
        """Returns the first job that is due by `until_ms`; the order of adding decides between two."""
        due: list[RecordedJob] = []
        for job in list(self._waiting.values()):
            if job.state != "waiting":
                del self._waiting[id(job)]
            elif job.due_ms <= until_ms:
                due.append(job)
        return min(due, key=lambda job: job.due_ms, default=None)

    def advance_to(self, now_ms: int) -> None:
        self.now_ms = max(self.now_ms, now_ms)

    def _find_job_holding_id(self, queue: str, job_id: str) -> RecordedJob | None:
        job = self.find_last_job(queue, job_id)
        if job is None or job.state == "cancelled":
            return None
        until_ms = job.unique_until_ms
        return job if (until_ms is None and job.state == "waiting") or (until_ms or 0) > self.now_ms else None

    def _read_due_ms(self, due: str) -> int:
        if due.startswith("+"):
            return self.now_ms + int(due)
        return max(int(due), self.now_ms) if due else self.now_ms
