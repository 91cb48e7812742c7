"""Logs failures of handlers: the first of a kind with its frames, the next ones as a count every PERIOD_S.

Ten thousand failures a second make a few lines, and the first failure of each kind is always logged. Lines about dead
jobs and entries are bounded in each second, and the rest is a count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._core.delivery import Delivery
from .._core.failure import Failure, format_stack
from .._core.guarded_log import GuardedLogger
from .._core.printable import printable

log = GuardedLogger("chasqui.worker")

PERIOD_S = 10.0
MAX_KINDS = 200  # a producer that invents names must fill neither our memory nor the log
MAX_FRAMES_SHOWN = 5
LINES_A_SECOND = 10  # a burst of dead jobs must not be slowed down by a log line for each of them

FailureKind = tuple[object, ...]
_OTHERS: FailureKind = ("others",)


@dataclass
class _Repeats:
    """Failures of one kind since the last line about it."""

    description: str
    count: int = 0


class FailureLog:
    """Failures are of one kind if job name, error type and raising line are equal. `call_later` is the event loop's."""

    def __init__(self, call_later: Callable[[float, Callable[[], None]], Any]) -> None:
        self._call_later = call_later
        self._repeats: dict[FailureKind, _Repeats] = {}
        self._deaths = 0  # in this second

    def log_first_or_count(self, job: Delivery, failure: Failure, what_next: str, *arguments: object) -> bool:
        """Logs the failure if it is the first of its kind, else counts it; returns whether it was the first."""
        kind: FailureKind = (job.name, failure.error_type, failure.raised_at)
        repeats = self._repeats.get(kind)
        if repeats is None and len(self._repeats) >= MAX_KINDS:
            kind = _OTHERS
            repeats = self._repeats.get(kind)
        if repeats is not None:
            repeats.count += 1
            if log.isEnabledFor(logging.DEBUG):
                self._log_failure_line(logging.DEBUG, job, failure, what_next % arguments)
            return False
        self._begin_counting_repeats_and_schedule_log(kind, job, failure)
        frames = (
            "\n" + format_stack(failure.list_handler_lines()[-MAX_FRAMES_SHOWN:]).rstrip() if failure.frames else ""
        )
        self._log_failure_line(logging.WARNING, job, failure, what_next % arguments, frames)
        return True

    def _log_failure_line(self, level: int, job: Delivery, failure: Failure, what_next: str, frames: str = "") -> None:
        runs, why = job.attempt + 1, describe_failure(failure)
        log.log(level, "job %.100r (%.100r) failed in run %d, %s: %s%s", job.id, job.name, runs, what_next, why, frames)

    def _begin_counting_repeats_and_schedule_log(self, kind: FailureKind, job: Delivery, failure: Failure) -> None:
        if not self._repeats:
            self._call_later(PERIOD_S, self._log_counts_periodically)
        others = "failures of other kinds"
        description = (
            others if kind is _OTHERS else f"{printable(job.name)!r} has failed with {printable(failure.error_type)}"
        )
        self._repeats[kind] = _Repeats(description)

    def count_death_and_check_room_for_line(self) -> bool:
        """Returns whether there is room for a line about another death in this second; else the death is counted."""
        if not self._deaths:
            self._call_later(1.0, self._log_unlogged_deaths_and_begin_second)
        self._deaths += 1
        return self._deaths <= LINES_A_SECOND

    def _log_unlogged_deaths_and_begin_second(self) -> None:
        self._log_and_clear_unlogged_deaths()
        self._deaths = 0

    def _log_and_clear_unlogged_deaths(self) -> None:
        if self._deaths > LINES_A_SECOND:
            log.warning("%d more jobs or entries have died in the same second", self._deaths - LINES_A_SECOND)
            self._deaths = LINES_A_SECOND

    def log_and_reset_counts(self) -> None:
        """Logs the count of each kind since its last line, and forgets a kind that has not occurred since."""
        self._log_and_clear_unlogged_deaths()
        for kind, repeats in list(self._repeats.items()):
            if not repeats.count:
                del self._repeats[kind]
                continue
            times = "once more" if repeats.count == 1 else f"{repeats.count} more times"
            log.warning("%s: %s within %g s", repeats.description, times, PERIOD_S)
            repeats.count = 0

    def _log_counts_periodically(self) -> None:
        self.log_and_reset_counts()
        if self._repeats:
            self._call_later(PERIOD_S, self._log_counts_periodically)


def describe_failure(failure: Failure) -> str:
    """Returns type and text of an error for a log line."""
    return printable(f"{failure.error_type}: {failure.text}" if failure.text else failure.error_type)
