"""Decides what becomes of a job whose run failed: another run after a delay, or the dead letters. Pure.

The values at the end have what is known of the job until Redis has taken it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ..errors import LONGEST_DELAY_S
from .delivery import Delivery
from .failure import Failure, FailureClass
from .retry_delay import compute_retry_delay_ms
from .retry_options import RetryPolicy

CANCELLED = "cancelled"  # the reason of a job that ends because it was cancelled; it gets no dead letter
EXPIRED = "expired"  # the reason of a job that was not started in time
OUTCOME_EXTRA_BYTES = 1000  # about what an outcome takes beside its job's data


class Retry(NamedTuple):
    """The job runs again after this delay."""

    delay_ms: int
    uses_up_attempt: bool = True


class Dead(NamedTuple):
    """The job goes to the dead letters for this reason."""

    reason: str


def decide_retry_or_dead(
    job: Delivery,
    failure: Failure,
    default_max_attempts: int,
    policy: RetryPolicy,
    jitter: Callable[[int], int],
    snoozes: int = 0,
) -> Retry | Dead:
    """Applies, in this order: UnrecoverableError, Snooze, the number of runs, the handler's RetryLater, the backoff.

    `snoozes` is how often the job was put back by Snooze before.
    """
    reason = find_reason_of_death(failure, job.attempt, find_max_attempts(job, default_max_attempts), snoozes)
    if reason is not None:
        return Dead(reason)
    if failure.delay_ms is not None:
        return Retry(failure.delay_ms, uses_up_attempt=failure.snooze_limit is None)
    backoff = job.retry.backoff if job.retry is not None else None
    delay_ms = compute_retry_delay_ms(policy, backoff, job.attempt, jitter)
    return Retry(min(delay_ms, 1000 * LONGEST_DELAY_S))  # Lua adds it to a time, exactly up to 2**53


def find_reason_of_death(failure: Failure, attempt: int, max_attempts: int, snoozes: int) -> str | None:
    """Returns why no run follows a run that failed; None if one follows.

    `attempt` and `snoozes` are those of the run: how many runs failed before it, and how often Snooze put the job back.
    """
    if failure.is_unrecoverable:
        return "unrecoverable"
    if failure.snooze_limit is not None and failure.delay_ms is not None:
        is_over = snoozes >= failure.snooze_limit
    else:
        is_over = attempt + 1 >= max_attempts
    return "retries_exhausted" if is_over else None


def find_max_attempts(job: Delivery, default: int) -> int:
    """Returns the job's own max_attempts if it has one, else `default`, the worker's."""
    own = job.retry.max_attempts if job.retry is not None else None
    return default if own is None else own


class FailedRun(msgspec.Struct, frozen=True, gc=False):
    """A run that ended by an error, as events and metrics report it. It keeps neither the error nor its frames."""

    attempt: int  # 1 for the first run
    duration_us: int
    kind: FailureClass
    error_type: str
    error: str


def make_cancelled_run(job: Delivery) -> FailedRun:
    return FailedRun(job.attempt + 1, int((job.ended_at - job.started_at) * 1_000_000), "cancelled", "", "")


def make_failed_run(job: Delivery, failure: Failure) -> FailedRun:
    """Copies what events and metrics need, so that the error and its frames can be freed before Redis answers."""
    duration_us = int((job.ended_at - job.started_at) * 1_000_000)
    return FailedRun(job.attempt + 1, duration_us, failure.kind, failure.error_type, failure.text)


class Rescheduled(msgspec.Struct, gc=False):
    """A job that is to run again. Its events and metrics are derived from these fields."""

    entry_id: bytes
    delivery: int
    delay_ms: int
    member: bytes
    job_id: str
    may_be_unique: bool
    job_name: str
    at_ms: int  # when this was decided
    run: FailedRun
    size: int = 0  # about how many bytes it takes here

    def __post_init__(self) -> None:
        self.size = len(self.member) + OUTCOME_EXTRA_BYTES

    def as_cancelled(self) -> Buried:
        """Returns the same job, which was cancelled before it could be moved: it does not run again."""
        run = msgspec.structs.replace(self.run, kind="cancelled", error_type="", error="")
        own = (self.job_id, self.may_be_unique, self.job_name)
        return Buried(self.entry_id, self.delivery, [], *own, self.at_ms, CANCELLED, run.attempt, run)


class Buried(msgspec.Struct, gc=False):
    """A job, or an entry that could not become one, that is to be buried. Events and metrics come from it.

    A cancelled job has an empty letter: it is only removed.
    """

    entry_id: bytes
    delivery: int
    letter: list[bytes]
    job_id: str | None  # None: the entry could not become a job
    may_be_unique: bool
    job_name: str
    at_ms: int  # when this was decided
    reason: str
    runs: int
    run: FailedRun | None = None  # the last run, if it was here
    size: int = 0  # about how many bytes it takes here

    def __post_init__(self) -> None:
        self.size = sum(map(len, self.letter)) + OUTCOME_EXTRA_BYTES
