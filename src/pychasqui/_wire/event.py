"""The fields of an event, written and read.

    e           kind: active, completed, failed, retry-scheduled, dlq, progress, drained, waiting ...
    id          the job's id, empty for an event of no single job
    ts          when it happened, in ms since 1970
    n           the job's name, if it has one
    attempt     which run, 1 for the first
    then        fields of the kind, in the order of the functions below

write_completed.lua writes active and completed itself, from completed_arguments(); promote.lua writes waiting.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._core.outcome import FailedRun
from .entry import Entry
from .lenient import read_int, read_pairs, read_text

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

    def words(self) -> list[str | int]:
        """Fields and values in the official order."""
        name = ("n", self.job_name) if self.job_name else ()
        return ["e", self.kind, "id", self.job_id, "ts", self.at_ms or now_ms(), *name, *self.extras]


def failed_event(job_id: str, job_name: str, run: FailedRun, at_ms: int) -> Event:
    """A handler has raised."""
    extras = ("attempt", run.attempt, "reason", bounded(run.error), "duration_us", run.duration_us)
    return Event("failed", job_id, job_name, extras, at_ms)


def retry_event(job_id: str, job_name: str, attempt: int, delay_ms: int, at_ms: int) -> Event:
    """A failed job waits for the run with the number `attempt`."""
    return Event("retry-scheduled", job_id, job_name, ("attempt", attempt, "backoff_ms", delay_ms), at_ms)


def dead_event(job_id: str, job_name: str, runs: int, reason: str, run: FailedRun | None, at_ms: int) -> Event:
    """A job is in the dead letters after that many runs; `run` is the last of them if it ended here."""
    extras: tuple[str | int, ...] = ("attempt", runs, "reason", reason)
    if run is not None:
        extras += ("error_type", bounded(run.error_type), "error", bounded(run.error))
    return Event("dlq", job_id, job_name, extras, at_ms)


def joined(*events: Event) -> tuple[str | int, ...]:
    """Events as scripts take them: each with its number of words before it."""
    words: list[str | int] = []
    for event in events:
        own = event.words()
        words += (len(own), *own)
    return tuple(words)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def bounded(text: str) -> str:
    """An error's text as an event carries it."""
    return text[:MAX_REASON_CHARS].encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """One event. `fields` holds what is particular to its kind; numbers are ints."""

    name: str
    job_id: str | None  # None for events of no single job
    job_name: str
    fields: dict[str, Any]
    event_id: str = ""  # its id in the stream: pass it as last_event_id to read on after it


def read_event(entry: Entry) -> QueueEvent:
    """Reads any entry of the event stream. A number that is none stays text, and long texts are cut."""
    pairs = {
        read_text(field, MAX_FIELD_BYTES) or "": read_text(value) or "" for field, value in read_pairs(entry[1]).items()
    }
    fields: dict[str, Any] = {}
    for field, value in pairs.items():
        if field not in _HEAD:
            number = read_int(value) if field in NUMBERS else None
            fields[field] = value if number is None else number
    return QueueEvent(pairs.get("e", ""), pairs.get("id") or None, pairs.get("n", ""), fields, entry[0].decode())
