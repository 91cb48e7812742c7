"""Turns each failure into an outcome, says so in the log, and hands it to the acker."""

from __future__ import annotations

import logging
import random
from time import monotonic
from typing import Protocol

from ..job import Job
from ..retry import KINDS, RetryPolicy
from .outcomes import Retry, dead_letter, delayed_member, judge, rejected_letter

log = logging.getLogger("chasqui.worker")


class Settler(Protocol):
    def reschedule(self, entry_id: bytes, delay_ms: int, member: bytes) -> None: ...
    def bury(self, entry_id: bytes, letter: list[bytes]) -> None: ...


LINES_A_SECOND = 10  # a burst of dead jobs must not be slowed down by telling about each of them


class Verdicts:
    def __init__(self, settler: Settler, consumer: str, *, max_attempts: int, policy: RetryPolicy) -> None:
        self._settler = settler
        self._consumer = consumer
        self._max_attempts = max_attempts
        self._policy = policy
        self._strange_kinds: set[str] = set()
        self._second = 0
        self._lines = 0

    def failed(self, job: Job, error: BaseException) -> None:
        """The handler raised."""
        self._warn_of_strange_kind(job)
        verdict = judge(job, error, self._max_attempts, self._policy, random.randrange)
        runs = job.attempt + 1
        if isinstance(verdict, Retry):
            log.info(
                "job %r (%r) failed in run %d, next in %d ms: %.200r", job.id, job.name, runs, verdict.delay_ms, error
            )
            self._settler.reschedule(job._entry_id, verdict.delay_ms, delayed_member(job))
        else:
            self._bury(job, verdict.reason, error, runs)

    def exhausted(self, job: Job) -> None:
        """It had used up its runs before it came here: its workers died, or it failed under another policy."""
        self._bury(job, "retries_exhausted", None, job.attempt)

    def rejected(self, entry_id: bytes, fields: list[bytes] | None, reason: str, detail: str) -> None:
        """The entry could not become a job."""
        self._warn("entry %s cannot be run and is dead: %s: %.200r", entry_id.decode(), reason, detail)
        self._settler.bury(entry_id, rejected_letter(entry_id, fields, reason, detail, self._consumer))

    def _bury(self, job: Job, reason: str, error: BaseException | None, runs: int) -> None:
        self._warn("job %r (%r) is dead after %d runs: %s: %.200r", job.id, job.name, runs, reason, error)
        self._settler.bury(job._entry_id, dead_letter(job, reason, error, runs, self._consumer))

    def _warn(self, text: str, *arguments: object) -> None:
        second = int(monotonic())
        if second != self._second:
            if self._lines > LINES_A_SECOND:
                log.warning("and %d more dead jobs in the same second", self._lines - LINES_A_SECOND)
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= LINES_A_SECOND:
            log.warning(text, *arguments)

    def _warn_of_strange_kind(self, job: Job) -> None:
        backoff = job._retry.backoff if job._retry is not None else None
        if backoff is not None and backoff.kind not in KINDS and backoff.kind not in self._strange_kinds:
            if len(self._strange_kinds) < 100:
                self._strange_kinds.add(backoff.kind)
            log.warning("the backoff kind %r is not known and counts as exponential", backoff.kind[:100])
