"""The fields of an event, written and read.

    e           kind: active, completed, failed, timeout, retry-scheduled, cancelled, expired, dlq ...
    id          the job's id, empty for an event of no single job
    ts          when it happened, in ms since 1970
    n           the job's name, if it has one
    attempt     which run, 1 for the first
    then        fields of the kind, in the order of the functions below

write_completed.lua writes active and completed itself, from make_write_completed_arguments(); promote.lua writes
waiting, and cancel.lua and move_delayed.lua cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from .._core.clock import now_ms
from .._core.outcome import CANCELLED, FailedRun
from .entry import Entry
from .lenient import read_cut_text, read_first_pairs, read_int

RETRY_SCHEDULED = "retry-scheduled"
MAX_REASON_CHARS = 500
MAX_FIELD_BYTES = 200
NUMBERS = frozenset({"attempt", "backoff_ms", "delay_ms", "duration_us", "ts"})
_HEAD = frozenset({"e", "id", "n"})


class Event(NamedTuple):
    """An event to be written."""

    kind: str
    job_id: str = ""
    job_name: str = ""
    extras: tuple[str | int, ...] = ()
    at_ms: int = 0  # 0: when it is written

    def to_words(self) -> list[str | int]:
        """Returns fields and values in the official order."""
        name = ("n", self.job_name) if self.job_name else ()
        return ["e", self.kind, "id", self.job_id, "ts", self.at_ms or now_ms(), *name, *self.extras]


def make_active_event(job_id: str, job_name: str, attempt: int, at_ms: int) -> Event:
    """A handler was called."""
    return Event("active", job_id, job_name, ("attempt", attempt), at_ms)


def make_completed_without_result_event(
    job_id: str, job_name: str, attempt: int, duration_us: int, why: str, at_ms: int
) -> Event:
    """A job is completed, and what it returned could not be stored."""
    extras = ("attempt", attempt, "duration_us", duration_us, "stored", 0, "why", why)
    return Event("completed", job_id, job_name, extras, at_ms)


# A completed job as write_completed.lua takes it: job id, job name, attempt, start in ms ("" if its event active is
# already written), end in ms, duration in us.
# hot: a plain tuple; a NamedTuple takes 0.3 us longer a job
CompletedEvent: TypeAlias = tuple[str, str, int, int | str, int, int]


def make_write_completed_arguments(completed: Iterable[CompletedEvent], *, result_prefix: str) -> Iterable[str | int]:
    """Returns the arguments of write_completed.lua behind the length of the stream.

    Without results the prefix is empty.
    """
    return chain((result_prefix,), chain.from_iterable(completed))


def make_failed_event(job_id: str, job_name: str, run: FailedRun, at_ms: int) -> Event:
    """A handler has raised."""
    extras = ("attempt", run.attempt, "reason", cut_event_text(run.error), "duration_us", run.duration_us)
    return Event("failed", job_id, job_name, extras, at_ms)


def make_failed_run_events(job_id: str, job_name: str, run: FailedRun, at_ms: int) -> list[Event]:
    """Returns the events of a run that failed; one that was stopped because it took too long has one more."""
    failed = make_failed_event(job_id, job_name, run, at_ms)
    if run.kind != "timeout":
        return [failed]
    extras = ("attempt", run.attempt, "duration_us", run.duration_us)
    return [Event("timeout", job_id, job_name, extras, at_ms), failed]


def make_retry_event(job_id: str, job_name: str, next_attempt: int, delay_ms: int, at_ms: int) -> Event:
    """A failed job waits for the run with the number `next_attempt`."""
    return Event(RETRY_SCHEDULED, job_id, job_name, ("attempt", next_attempt, "backoff_ms", delay_ms), at_ms)


def make_dead_event(job_id: str, job_name: str, runs: int, reason: str, run: FailedRun | None, at_ms: int) -> Event:
    """A job is in the dead letters after that many runs; `run` is the last of them if it ended here."""
    extras: tuple[str | int, ...] = ("attempt", runs, "reason", reason)
    if run is not None:
        extras += ("error_type", cut_event_text(run.error_type), "error", cut_event_text(run.error))
    return Event("dlq", job_id, job_name, extras, at_ms)


def make_cancelled_event(job_id: str, job_name: str, runs: int, run: FailedRun | None, at_ms: int) -> Event:
    """A job was cancelled; `run` is the one that ended by that."""
    extras: tuple[str | int, ...] = ("attempt", runs)
    if run is not None:
        extras += ("duration_us", run.duration_us)
    return Event("cancelled", job_id, job_name, extras, at_ms)


def make_expired_event(job_id: str, job_name: str, runs: int, at_ms: int) -> Event:
    """A job was not started in time."""
    return Event("expired", job_id, job_name, ("attempt", runs), at_ms)


def make_progress_event(job_id: str, job_name: str, percent: int, words: tuple[str | int, ...]) -> Event:
    """A handler says how far its job is; `words` are fields of its own."""
    cut = (cut_event_text(word) if isinstance(word, str) else word for word in words)
    return Event("progress", job_id, job_name, ("progress", percent, *cut))


def make_drained_event() -> Event:
    """A read has found nothing after one that found something."""
    return Event("drained")


def encode_events_for_scripts(*events: Event) -> tuple[str | int, ...]:
    """Returns events as scripts take them: each with its number of words before it."""
    words: list[str | int] = []
    for event in events:
        own = event.to_words()
        words += (len(own), *own)
    return tuple(words)


def cut_event_text(text: str) -> str:
    """Returns an error's text as an event carries it."""
    return text[:MAX_REASON_CHARS].encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """One event. `fields` holds what is particular to its kind: attempt, backoff_ms, delay_ms, duration_us and ts are
    ints, the rest is text."""

    name: str
    job_id: str | None  # None for events of no single job
    job_name: str
    fields: dict[str, Any]
    event_id: str = ""  # its id in the stream: pass it as last_event_id to read on after it


def read_event(entry: Entry) -> QueueEvent:
    """Reads any entry of the event stream. A number that is none stays text, and long texts are cut."""
    pairs = {
        read_cut_text(field, MAX_FIELD_BYTES) or "": read_cut_text(value) or ""
        for field, value in read_first_pairs(entry[1]).items()
    }
    fields: dict[str, Any] = {}
    for field, value in pairs.items():
        if field not in _HEAD:
            number = read_int(value) if field in NUMBERS else None
            fields[field] = value if number is None else number
    return QueueEvent(pairs.get("e", ""), pairs.get("id") or None, pairs.get("n", ""), fields, entry[0].decode())


class JobEnd(NamedTuple):
    """What an event completed, cancelled or dlq says of the end of a job."""

    is_dead: bool
    is_cancelled: bool
    is_stored: bool | None  # None if an official worker wrote it, which does not say
    why_not_stored: str  # "" if its worker stores no results
    reason: str
    error_type: str
    error: str | None  # None if an official worker wrote it
    attempts: int


def read_job_end(event: QueueEvent) -> JobEnd:
    """Reads the fields of an event completed, cancelled or dlq."""
    fields = event.fields
    attempts, error = fields.get("attempt", 0), fields.get("error")
    return JobEnd(
        is_dead=event.name == "dlq",
        is_cancelled=event.name == CANCELLED,
        is_stored={"1": True, "0": False}.get(fields.get("stored", "")),
        why_not_stored=str(fields.get("why", "")),
        reason=str(fields.get("reason", "")),
        error_type=str(fields.get("error_type", "")),
        error=None if error is None else str(error),
        attempts=attempts if isinstance(attempts, int) else 0,
    )


def read_failure_text(event: QueueEvent) -> str:
    """Returns the error's text in an event failed."""
    return str(event.fields.get("reason", ""))
