"""Turns each failure into an outcome, says so in the log, and hands it to the acker."""

from __future__ import annotations

import logging
import random
from time import monotonic
from typing import Protocol

from .._core.delivery import Delivery
from .._core.failure import Failure, read_failure
from .._redis.commands import Buried, Rescheduled
from .._wire.envelope import decode_name
from .._wire.event import Event, bounded, joined
from ..metrics import DlqRouted, Record, RetryScheduled, outcome_of
from ..retry import KINDS, RetryPolicy
from .failure_log import FailureLog, described
from .outcomes import Retry, dead_letter, delayed_member, judge, rejected_letter

log = logging.getLogger("chasqui.worker")


class Settler(Protocol):
    def reschedule(self, job: Rescheduled) -> None: ...
    def bury(self, job: Buried) -> None: ...


STRANGE_KINDS = 100
LINES_A_SECOND = 10  # a burst of dead jobs must not be slowed down by telling about each of them


def _failed(job: Delivery, failure: Failure) -> Event:
    duration_us = int((job.ended_at - job.started_at) * 1_000_000)
    extras = ("attempt", job.attempt + 1, "reason", bounded(failure.text), "duration_us", duration_us)
    return Event("failed", job.id, job.name, extras)


class FailureHandler:
    def __init__(
        self,
        settler: Settler,
        consumer: str,
        *,
        max_attempts: int,
        policy: RetryPolicy,
        failures: FailureLog,
        announces: bool = False,
        counts: bool = False,
    ) -> None:
        self._settler = settler
        self._consumer = consumer
        self._max_attempts = max_attempts
        self._policy = policy
        self._failures = failures
        self._announces = announces
        self._counts = counts
        self._strange_kinds: set[str] = set()
        self._second = 0
        self._lines = 0

    def failed(self, job: Delivery, error: BaseException) -> None:
        """The handler raised."""
        self._warn_of_strange_kind(job)
        failure = read_failure(error)
        verdict = judge(job, failure, self._max_attempts, self._policy, random.randrange)
        runs = job.attempt + 1
        if isinstance(verdict, Retry):
            self._failures.tell(job, failure, "next in %d ms", verdict.delay_ms)
            member, is_marked = delayed_member(job), int(job.is_marked)
            self._settler.reschedule(
                Rescheduled(
                    job.entry_id,
                    job.number,
                    verdict.delay_ms,
                    member,
                    job.id,
                    is_marked,
                    self._retry_events(job, failure, verdict.delay_ms) if self._announces else (),
                    (outcome_of(job, failure.kind), RetryScheduled(runs + 1, verdict.delay_ms, job.name))
                    if self._counts
                    else (),
                )
            )
        else:
            self._bury(job, verdict.reason, failure, runs)

    def _retry_events(self, job: Delivery, failure: Failure, delay_ms: int) -> tuple[str | int, ...]:
        extras = ("attempt", job.attempt + 2, "backoff_ms", delay_ms)
        return joined(_failed(job, failure), Event("retry-scheduled", job.id, job.name, extras))

    def exhausted(self, job: Delivery) -> None:
        """It had used up its runs before it came here: its workers died, or it failed under another policy."""
        self._bury(job, "retries_exhausted", None, job.attempt)

    def rejected(self, entry_id: bytes, delivery: int, fields: list[bytes] | None, reason: str, detail: str) -> None:
        """The entry could not become a job."""
        if self._may_warn():
            log.warning("entry %s cannot be run and is dead: %s: %.200r", entry_id.decode(), reason, detail)
        letter = rejected_letter(entry_id, fields, reason, detail, self._consumer)
        events = joined(Event("dlq", extras=("attempt", 0, "reason", reason))) if self._announces else ()
        records = (DlqRouted(reason, 0, _name_in(fields)),) if self._counts else ()
        self._settler.bury(Buried(entry_id, delivery, "", letter, events, records))

    def _bury(self, job: Delivery, reason: str, failure: Failure | None, runs: int) -> None:
        is_told = failure is not None and self._failures.tell(
            job, failure, "and is dead after %d runs: %s", runs, reason
        )
        if not is_told and self._may_warn():
            why = "" if failure is None else f": {described(failure)}"
            log.warning("job %.100r (%.100r) is dead after %d runs: %s%s", job.id, job.name, runs, reason, why)
        letter = dead_letter(job, reason, failure, runs, self._consumer)
        events = joined(*self._last_events(job, reason, failure, runs)) if self._announces else ()
        marked_id = job.id if job.is_marked else ""
        records = self._last_records(job, reason, failure, runs) if self._counts else ()
        self._settler.bury(Buried(job.entry_id, job.number, marked_id, letter, events, records))

    def _last_events(self, job: Delivery, reason: str, failure: Failure | None, runs: int) -> tuple[Event, ...]:
        extras: tuple[str | int, ...] = ("attempt", runs, "reason", reason)
        if failure is None:
            return (Event("dlq", job.id, job.name, extras),)
        extras += ("error_type", bounded(failure.error_type), "error", bounded(failure.text))
        return (_failed(job, failure), Event("dlq", job.id, job.name, extras))

    def _last_records(self, job: Delivery, reason: str, failure: Failure | None, runs: int) -> tuple[Record, ...]:
        dead = DlqRouted(reason, runs, job.name)
        return (dead,) if failure is None else (outcome_of(job, failure.kind), dead)

    def _may_warn(self) -> bool:
        """Whether there is room for another line about a dead job within this second."""
        second = int(monotonic())
        if second != self._second:
            if self._lines > LINES_A_SECOND:
                log.warning("and %d more dead jobs in the same second", self._lines - LINES_A_SECOND)
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= LINES_A_SECOND

    def _warn_of_strange_kind(self, job: Delivery) -> None:
        backoff = job.retry.backoff if job.retry is not None else None
        if backoff is None or backoff.kind in KINDS or backoff.kind in self._strange_kinds:
            return
        if len(self._strange_kinds) < STRANGE_KINDS:  # whoever makes them up as they go must not fill the log
            self._strange_kinds.add(backoff.kind)
            log.warning("the backoff kind %r is not known and counts as exponential", backoff.kind[:100])


def _name_in(fields: list[bytes] | None) -> str:
    """The name of an entry that could not become a job."""
    name = dict(zip((fields or [])[::2], (fields or [])[1::2], strict=False)).get(b"n")
    return decode_name(name)
