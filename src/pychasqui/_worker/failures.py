"""Logs and judges each failure, and hands the acker the outcome: a job to reschedule or to bury."""

from __future__ import annotations

from collections.abc import Callable
from random import random

from .._core.clock import now_ms
from .._core.delivery import Delivery
from .._core.failure import Failure, read_failure
from .._core.guarded_log import GuardedLogger
from .._core.limits import MAX_U32
from .._core.outcome import (
    CANCELLED,
    EXPIRED,
    Buried,
    Rescheduled,
    Retry,
    decide_retry_or_dead,
    make_cancelled_run,
    make_failed_run,
)
from .._core.retry_options import KINDS, RetryPolicy
from .._wire.dead_letter import LastError, encode_dead_letter, encode_letter_of_rejected_entry
from .._wire.entry import read_name_of_rejected_or_empty
from .._wire.envelope import PUT_BACKS, SNOOZES, encode_envelope, read_put_back_count, set_or_remove_extra
from .._wire.member import make_delayed_member
from .failure_log import FailureLog, describe_failure
from .job_stops import JobStops

log = GuardedLogger("chasqui.worker")

MAX_UNKNOWN_KINDS = 100


class FailureHandler:
    """Has one method for each way in which a job or an entry fails."""

    def __init__(
        self,
        consumer: str,
        *,
        max_attempts: int,
        policy: RetryPolicy,
        failure_log: FailureLog,
        stops: JobStops,
        queue_reschedule: Callable[[Rescheduled], None],
        queue_bury: Callable[[Buried], None],
    ) -> None:
        self._consumer = consumer
        self._max_attempts = max_attempts
        self._policy = policy
        self._failure_log = failure_log
        self._stops = stops
        self._queue_reschedule = queue_reschedule
        self._queue_bury = queue_bury
        self._unknown_kinds: set[str] = set()

    def log_error_and_queue_outcome(self, job: Delivery, error: BaseException) -> None:
        """Reschedules or buries a job whose handler raised. A job that is cancelled is finished instead."""
        self._warn_if_new_unknown_backoff_kind(job)
        if (stop := self._stops.pop_stop(job)) is not None:
            if stop.is_for_cancelled_job:
                self.queue_end_of_cancelled(job)
                return
            error = stop.choose_error_for_timed_out_run(error)
        failure = read_failure(error)
        counter = PUT_BACKS if failure.is_unknown_task else SNOOZES
        snoozes = 0 if failure.snooze_limit is None else read_put_back_count(job.extras, counter)
        outcome = decide_retry_or_dead(job, failure, self._max_attempts, self._policy, _random_below, snoozes)
        if isinstance(outcome, Retry):
            member = (
                make_next_run_member(job) if outcome.uses_up_attempt else make_snoozed_member(job, snoozes + 1, counter)
            )
            self._log_and_queue_reschedule(job, failure, outcome.delay_ms, member)
        else:
            if snoozes:  # a replay begins from the start
                job.extras = set_or_remove_extra(job.extras, counter, None)
            self._log_and_queue_bury(job, outcome.reason, failure, job.attempt + 1)

    def queue_bury_of_exhausted(self, job: Delivery) -> None:
        """The job had used up its runs before it came here: its workers died, or it failed under another policy."""
        self._log_and_queue_bury(job, "retries_exhausted", None, job.attempt)

    def queue_bury_of_expired(self, job: Delivery) -> None:
        """The job was not started in time, and is not run any more."""
        self._log_and_queue_bury(job, EXPIRED, None, job.attempt)

    def queue_end_of_cancelled(self, job: Delivery) -> None:
        """The job is cancelled: its run has ended by that, or it has not begun."""
        log.info("job %.100r (%.100r) is cancelled", job.id, job.name)
        run = make_cancelled_run(job) if job.started_at else None
        runs = job.attempt + (run is not None)
        own = (job.id, job.may_be_unique, job.name)
        self._queue_bury(Buried(job.entry_id, job.delivery_number, [], *own, now_ms(), CANCELLED, runs, run))

    def queue_bury_of_rejected(
        self, entry_id: bytes, delivery: int, fields: list[bytes] | None, reason: str, detail: str
    ) -> None:
        """The entry could not become a job."""
        if self._failure_log.count_death_and_check_room_for_line():
            log.warning("entry %s cannot be run and is dead: %s: %.200r", entry_id.decode(), reason, detail)
        letter = encode_letter_of_rejected_entry(entry_id, fields, reason, detail, self._consumer)
        self._queue_bury(
            Buried(entry_id, delivery, letter, None, False, read_name_of_rejected_or_empty(fields), now_ms(), reason, 0)
        )

    def _log_and_queue_reschedule(self, job: Delivery, failure: Failure, delay_ms: int, member: bytes) -> None:
        self._failure_log.log_first_or_count(job, failure, "next in %d ms", delay_ms)
        self._queue_reschedule(
            Rescheduled(
                job.entry_id,
                job.delivery_number,
                delay_ms,
                member,
                job.id,
                job.may_be_unique,
                job.name,
                now_ms(),
                make_failed_run(job, failure),
            )
        )

    def _log_and_queue_bury(self, job: Delivery, reason: str, failure: Failure | None, runs: int) -> None:
        is_logged = failure is not None and self._failure_log.log_first_or_count(
            job, failure, "and is dead after %d runs: %s", runs, reason
        )
        if not is_logged and self._failure_log.count_death_and_check_room_for_line():
            why = "" if failure is None else f": {describe_failure(failure)}"
            log.warning("job %.100r (%.100r) is dead after %d runs: %s%s", job.id, job.name, runs, reason, why)
        error = None if failure is None else LastError(failure.error_type, failure.text, failure.format_traceback())
        self._queue_bury(
            Buried(
                job.entry_id,
                job.delivery_number,
                encode_dead_letter(job, reason, error, runs, self._consumer),
                job.id,
                job.may_be_unique,
                job.name,
                now_ms(),
                reason,
                runs,
                None if failure is None else make_failed_run(job, failure),
            )
        )

    def _warn_if_new_unknown_backoff_kind(self, job: Delivery) -> None:
        backoff = job.retry.backoff if job.retry is not None else None
        if backoff is None or backoff.kind in KINDS or backoff.kind in self._unknown_kinds:
            return
        if len(self._unknown_kinds) < MAX_UNKNOWN_KINDS:  # a producer that invents kinds must not fill the log
            self._unknown_kinds.add(backoff.kind)
            log.warning("the backoff kind %r is not known and counts as exponential", backoff.kind[:100])


def _random_below(bound: int) -> int:
    # hot: random.randrange takes 0.5 us longer
    return int(random() * bound)


def make_next_run_member(job: Delivery) -> bytes:
    """Returns the member of the delayed set for a failed job: it has one attempt more."""
    attempt = min(job.attempt + 1, MAX_U32)  # deliveries count as attempts, and others may set their number
    return make_delayed_member(
        job.name, encode_envelope(job.id, job.payload, job.created_at_ms, attempt, job.retry, job.extras)
    )


def make_snoozed_member(job: Delivery, snoozes: int, counter: str = SNOOZES) -> bytes:
    """Returns the member of the delayed set for a job that was put back: it has as many attempts left as before.

    Once its task has run, workers that do not know its name count from the start: each deployment may have some.
    """
    attempt, extras = min(job.attempt, MAX_U32), set_or_remove_extra(job.extras, counter, snoozes)
    if counter != PUT_BACKS:
        extras = set_or_remove_extra(extras, PUT_BACKS, None)
    return make_delayed_member(
        job.name, encode_envelope(job.id, job.payload, job.created_at_ms, attempt, job.retry, extras)
    )
