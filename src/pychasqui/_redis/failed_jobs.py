"""What becomes of a failed job, as reschedule.lua and bury.lua take it: it is to run again, or it is dead."""

from __future__ import annotations

import msgspec

from .._core.outcome import CANCELLED, EXPIRED, FailedRun
from .._wire.event import (
    Event,
    encode_events_for_scripts,
    make_cancelled_event,
    make_dead_event,
    make_expired_event,
    make_failed_run_events,
    make_retry_event,
)

OUTCOME_EXTRA_BYTES = 1000  # about what an outcome takes beside its job's data


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

    def make_script_arguments(self, *, with_events: bool) -> tuple[bytes | str | int, ...]:
        """Returns the job as reschedule.lua takes it."""
        events: tuple[str | int, ...] = ()
        if with_events:
            job = (self.job_id, self.job_name)
            events = encode_events_for_scripts(
                *make_failed_run_events(*job, self.run, self.at_ms),
                make_retry_event(*job, self.run.attempt + 1, self.delay_ms, self.at_ms),
            )
        head = (self.entry_id, self.delivery, self.delay_ms, self.member, self.job_id, int(self.may_be_unique))
        return (*head, len(events), *events)

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

    def make_script_arguments(self, *, with_events: bool) -> tuple[bytes | str | int, ...]:
        """Returns the job as bury.lua takes it."""
        events = encode_events_for_scripts(*self._make_events()) if with_events else ()
        unique_id = self.job_id if self.may_be_unique and self.job_id is not None else ""
        return (self.entry_id, self.delivery, unique_id, len(self.letter), len(events), *self.letter, *events)

    def _make_events(self) -> list[Event]:
        if self.job_id is None:
            return [make_dead_event("", "", self.runs, self.reason, None, self.at_ms)]
        job = (self.job_id, self.job_name)
        if self.reason == CANCELLED:
            return [make_cancelled_event(*job, self.runs, self.run, self.at_ms)]
        dead = make_dead_event(*job, self.runs, self.reason, self.run, self.at_ms)
        if self.reason == EXPIRED:
            return [make_expired_event(*job, self.runs, self.at_ms), dead]
        return [dead] if self.run is None else [*make_failed_run_events(*job, self.run, self.at_ms), dead]
