"""JobStatus: where a job is, and what is known about it.

A job that was added with an id of its own is found by its keys. The id that a queue makes up carries the time at which
the job was added, so its entry is looked for around that time: in a backlog of a million jobs that takes a few round
trips and some hundred entries. Events are read only if they can say more, dead letters and events from that time on and
among the newest. What is not found that way is "unknown", and `note` says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._core.checks import check_job_id_of_lookup
from ._core.ids import read_ulid_time_ms
from ._producer.session import QueueSession
from ._redis.inspector import HeldEntry
from ._redis.job_finder import MAX_CLOCK_LEAD_MS, count_entries_until_reached, find_entry_in_pages
from ._redis.replies import Entry
from ._wire.dead_letter import read_dead_letter
from ._wire.event import RETRY_SCHEDULED, QueueEvent, read_event, read_failure_text, read_job_end
from ._wire.lenient import read_entry_id
from ._wire.msgpack import decode_data
from .errors import DecodeError
from .inspector import JobView, find_among_first_delayed, find_delayed_by_index, find_entry, make_entry_view

__all__ = ["JobStatus", "JobStatusFinder"]

MAX_SEARCHED = 500  # entries, letters and events that are read at each end of their streams
MAX_COUNTED = 1000  # entries from each end, to say how many jobs come before one
NEAR_AN_END = 10_000  # jobs: only if there seem to be fewer between an end and the job, they are counted


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Where a job is: "waiting", "running", "delayed", "retrying", "dead", "done", "cancelled" or "unknown"."""

    id: str
    state: str
    name: str = ""
    data: Any = None
    attempt: int = 0  # which run it is, or will be: 1 for the first; 0 if that is not known
    created_at_ms: int | None = None
    ahead: int | None = None  # waiting: how many jobs come before it
    ahead_is_exact: bool = True  # waiting: False if `ahead` is an estimate
    worker: str | None = None  # running: the worker that holds it; dead: the one that buried it
    since_ms: int | None = None  # running: when its handler was called; dead and done: when it ended
    due_ms: int | None = None  # delayed and retrying: when it is due
    reason: str | None = None  # dead: why it was buried
    error_type: str | None = None  # dead: what the last run raised
    error: str | None = None  # dead and retrying: the text of the last error
    traceback: str | None = None  # dead
    result: Any = None  # done: what its handler returned
    has_result: bool = False  # done: whether `result` is stored
    progress: int | None = None  # in per cent, as its handler has reported it
    entry_id: str | None = None  # in the stream of jobs, or of dead letters
    note: str = ""  # what is not known, and why; of a delayed job, that no worker has known its name


class JobStatusFinder:
    """Implements Queue.status()."""

    def __init__(self, get_session: Callable[[], QueueSession]) -> None:
        self._get_session = get_session

    async def find(self, job_id: str) -> JobStatus:
        job_id = check_job_id_of_lookup(job_id)
        id_time_ms = read_ulid_time_ms(job_id)
        delayed, indexed, stored, progress = await asyncio.gather(
            find_delayed_by_index(self._get_session().inspector, job_id),
            self._get_session().inspector.find_entry_by_uniqueness_key(job_id),
            self._get_session().results.read_results([job_id]),
            self._get_session().results.read_progress(job_id),
        )
        if delayed is not None:
            return _make_delayed_or_retrying_status(
                delayed,
                await self._read_first_and_newest_job_events(job_id, id_time_ms) if delayed.attempt else [],
                progress,
            )
        # A uniqueness key may name the entry of another job if another program has written it.
        entry = None if indexed is None else find_entry([indexed], job_id)
        if entry is None and stored[0] is None and id_time_ms is not None:
            finder = self._get_session().job_finder
            entry = await finder.find_entry_created_around(lambda page: find_entry(page, job_id), id_time_ms)
        if entry is None:
            events = await self._read_first_and_newest_job_events(job_id, id_time_ms)
            if stored[0] is not None:
                return _make_done_status(job_id, stored[0], events, id_time_ms)
            last = _find_last_state_event(events)
            if (
                last is not None
                and last.name == "dlq"
                and (letter := await self._find_letter_among_newest_and_first(job_id, id_time_ms))
            ):
                return _make_dead_status(job_id, letter)
            if last is None or last.name not in ("completed", "cancelled"):
                entry = await self._find_entry_at_stream_ends(job_id)
            if entry is None:
                return await self._find_status_outside_stream(job_id, events, id_time_ms)
        return await self._read_status_of_entry(job_id, entry, id_time_ms, progress)

    async def _find_status_outside_stream(
        self, job_id: str, events: list[QueueEvent], id_time_ms: int | None
    ) -> JobStatus:
        """What is known of a job that is neither delayed nor in the stream."""
        if (letter := await self._find_letter_among_newest_and_first(job_id, id_time_ms)) is not None:
            return _make_dead_status(job_id, letter)
        # It may have moved while it was looked for: from the stream to its end, or back to the delayed jobs.
        inspector = self._get_session().inspector
        view, stored, progress = await asyncio.gather(
            find_delayed_by_index(inspector, job_id),
            self._get_session().results.read_results([job_id]),
            self._get_session().results.read_progress(job_id),
        )
        if stored[0] is not None:
            return _make_done_status(job_id, stored[0], events, id_time_ms)
        status = _make_status_from_events(job_id, events, id_time_ms)
        if view is None and status.state == "unknown":  # other programs delay jobs without an index
            view = await find_among_first_delayed(inspector, job_id)
        return status if view is None else _make_delayed_or_retrying_status(view, events, progress)

    async def _read_status_of_entry(
        self, job_id: str, entry: Entry, id_time_ms: int | None, progress: int | None
    ) -> JobStatus:
        held = await self._get_session().inspector.find_holder_of_entry(entry[0])
        if held is not None:
            return _make_running_status(
                job_id, entry, held, await self._read_first_and_newest_job_events(job_id, id_time_ms), progress
            )
        ahead, is_exact = await self._count_or_estimate_jobs_ahead(entry)
        view = make_entry_view("waiting", entry)
        note = "" if is_exact else "the number of jobs ahead of it is an estimate"
        return JobStatus(
            job_id,
            "waiting",
            **_view_to_common_fields(view),
            ahead=ahead,
            ahead_is_exact=is_exact,
            progress=progress,
            entry_id=view.entry_id,
            note=note,
        )

    # Finding --------------------------------------------------------------------------------------------------------

    async def _find_entry_at_stream_ends(self, job_id: str) -> Entry | None:
        """It was promoted or retried, or its id carries no time: it is at the ends of the stream, or not found."""
        finder, inspector = self._get_session().job_finder, self._get_session().inspector
        for pages in (
            inspector.read_delivered_then_waiting_pages(MAX_SEARCHED),
            finder.read_entry_pages("+", MAX_SEARCHED, is_back=True),
        ):
            if (entry := await find_entry_in_pages(pages, lambda page: find_entry(page, job_id))) is not None:
                return entry
        return None

    async def _find_letter_among_newest_and_first(self, job_id: str, id_time_ms: int | None) -> Entry | None:
        finder = self._get_session().job_finder
        start = "-" if id_time_ms is None else str(max(0, id_time_ms - MAX_CLOCK_LEAD_MS))
        newest = await find_entry_in_pages(
            finder.read_letter_pages("+", MAX_SEARCHED, is_back=True), lambda page: find_entry(page, job_id)
        )
        return newest or await find_entry_in_pages(
            finder.read_letter_pages(start, MAX_SEARCHED), lambda page: find_entry(page, job_id)
        )

    async def _read_first_and_newest_job_events(self, job_id: str, id_time_ms: int | None) -> list[QueueEvent]:
        """The job's events among the newest and among the first since it was added, oldest first."""
        wanted, found = job_id.encode(), dict[str, QueueEvent]()
        pages = [self._get_session().job_finder.read_event_pages("+", MAX_SEARCHED, is_back=True)]
        if id_time_ms is not None:
            pages.append(self._get_session().job_finder.read_event_pages(str(id_time_ms), MAX_SEARCHED))
        for some in pages:
            async for page in some:
                for entry in page:
                    if wanted in (entry[1] or ()) and (event := read_event(entry)).job_id == job_id:
                        found[event.event_id] = event
        return [found[event_id] for event_id in sorted(found, key=read_entry_id)]

    async def _count_or_estimate_jobs_ahead(self, entry: Entry) -> tuple[int, bool]:
        """How many jobs wait before this one: counted if it is near one of the ends, else estimated by its time."""
        inspector, finder = self._get_session().inspector, self._get_session().job_finder
        counts, first, newest = await asyncio.gather(
            inspector.read_counts(), inspector.read_waiting_page("", 1), finder.read_entries_newest_first(1)
        )
        if not first or not newest:  # it was read meanwhile
            return 0, True
        place, waiting = read_entry_id(entry[0]), counts.waiting
        first_ms, last_ms = read_entry_id(first[0][0])[0], read_entry_id(newest[0][0])[0]
        estimate = round(waiting * (place[0] - first_ms) / max(1, last_ms - first_ms))
        lowest, highest = 0, max(0, waiting - 1)
        if estimate < NEAR_AN_END or waiting < NEAR_AN_END:
            onwards = finder.read_entry_pages(first[0][0].decode(), MAX_COUNTED)
            lowest, is_reached = await count_entries_until_reached(onwards, lambda id_: id_ >= place)
            if is_reached:
                return lowest, True
        if estimate > waiting - NEAR_AN_END:
            behind, is_reached = await count_entries_until_reached(
                finder.read_entry_pages("+", MAX_COUNTED, is_back=True), lambda id_: id_ <= place
            )
            highest = max(lowest, waiting - behind - 1)
            if is_reached:
                return highest, True
        return max(lowest, min(highest, estimate)), False


# What is found becomes a status ---------------------------------------------------------------------------------------


def _view_to_common_fields(view: JobView) -> dict[str, Any]:
    created_at_ms = view.created_at_ms or None
    return {"name": view.name, "data": view.data, "attempt": view.attempt + 1, "created_at_ms": created_at_ms}


def _find_last_event(events: list[QueueEvent], *names: str) -> QueueEvent | None:
    return next((event for event in reversed(events) if event.name in names), None)


def _find_last_state_event(events: list[QueueEvent]) -> QueueEvent | None:
    """The event that says what became of the job last."""
    return _find_last_event(events, "completed", "cancelled", "dlq", "failed", RETRY_SCHEDULED, "active", "waiting")


def _read_event_time_ms_if_any(event: QueueEvent | None) -> int | None:
    ts = None if event is None else event.fields.get("ts")
    return ts if isinstance(ts, int) else None


def _make_delayed_or_retrying_status(view: JobView, events: list[QueueEvent], progress: int | None) -> JobStatus:
    is_retry = view.attempt > 0
    failed = _find_last_event(events, "failed") if is_retry else None
    note = "" if failed or not is_retry else "its last error is not among the events that were read"
    note = view.error or note  # it cannot be decoded, or no worker has known its name
    return JobStatus(
        view.id or "",
        "retrying" if is_retry else "delayed",
        **_view_to_common_fields(view),
        due_ms=view.due_ms,
        error=read_failure_text(failed) if failed else None,
        progress=progress,
        note=note,
    )


def _make_running_status(
    job_id: str, entry: Entry, pending: HeldEntry, events: list[QueueEvent], progress: int | None
) -> JobStatus:
    view = make_entry_view("active", entry)
    active = _find_last_event(events, "active", "completed", "failed", RETRY_SCHEDULED, "waiting")
    is_seen = active is not None and active.name == "active"
    note = "" if is_seen else "when it began is not known: its event is not among those that were read"
    if not is_seen and progress is None:
        note += ", or it still waits inside its worker for a free handler"
    facts = _view_to_common_fields(view) | {"attempt": max(view.attempt + 1, pending.deliveries)}
    return JobStatus(
        job_id,
        "running",
        **facts,
        worker=pending.consumer,
        since_ms=_read_event_time_ms_if_any(active) if is_seen else None,
        progress=progress,
        entry_id=view.entry_id,
        note=note,
    )


def _make_dead_status(job_id: str, entry: Entry) -> JobStatus:
    letter, view = read_dead_letter(entry), make_entry_view("dead", entry)
    facts = _view_to_common_fields(view) | {"attempt": letter.attempts or 0}
    return JobStatus(
        job_id,
        "dead",
        **facts,
        worker=letter.worker,
        since_ms=read_entry_id(letter.dlq_id)[0],
        reason=letter.reason or None,
        error_type=letter.error_type,
        error=letter.error or letter.detail,
        traceback=letter.traceback,
        entry_id=letter.dlq_id,
        note="" if letter.attempts is not None else "an official worker buried it, which keeps no error",
    )


def _make_done_status(job_id: str, raw: bytes, events: list[QueueEvent], id_time_ms: int | None) -> JobStatus:
    end, note = _find_last_event(events, "completed"), ""
    try:
        result = decode_data(raw)
    except DecodeError as error:
        result, note = None, f"its result cannot be read: {error}"
    return JobStatus(
        job_id,
        "done",
        name=end.job_name if end else "",
        attempt=_read_event_attempt_or_zero(end),
        created_at_ms=id_time_ms,
        since_ms=_read_event_time_ms_if_any(end),
        result=result,
        has_result=not note,
        note=note,
    )


def _make_status_from_events(job_id: str, events: list[QueueEvent], id_time_ms: int | None) -> JobStatus:
    """What the events say of a job that is nowhere else."""
    last = _find_last_state_event(events)
    if last is None:
        note = "there is no trace of it: it was never added, or it ended or was removed before the oldest event"
        if id_time_ms is None:
            note += "; a job without an id of the queue's making is looked for only at the ends of a long queue"
        return JobStatus(job_id, "unknown", created_at_ms=id_time_ms, note=note)
    known: dict[str, Any] = {
        "name": last.job_name,
        "attempt": _read_event_attempt_or_zero(last),
        "created_at_ms": id_time_ms,
        "since_ms": _read_event_time_ms_if_any(last),
    }
    if last.name == "dlq":
        end = read_job_end(last)
        note = "its dead letter is gone: it was removed or replayed, or newer letters have pushed it out"
        kind, reason = end.error_type or None, end.reason or None
        return JobStatus(job_id, "dead", **known, reason=reason, error_type=kind, error=end.error, note=note)
    if last.name == "cancelled":
        return JobStatus(job_id, "cancelled", **known)
    if last.name == "completed":
        return JobStatus(job_id, "done", **known, note=_explain_missing_result(last))
    note = f"the last that is known of it is the event {last.name}; it is not where it was looked for since"
    return JobStatus(job_id, "unknown", **known, note=note)


def _explain_missing_result(completed: QueueEvent) -> str:
    end = read_job_end(completed)
    if end.is_stored:
        return "its result has expired"
    if end.is_stored is False:
        return (
            f"its result could not be stored: {end.why_not_stored}"
            if end.why_not_stored
            else "its worker stores no results"
        )
    return "no result is stored; its official worker does not say whether it stores any"


def _read_event_attempt_or_zero(event: QueueEvent | None) -> int:
    attempt = None if event is None else event.fields.get("attempt")
    return attempt if isinstance(attempt, int) else 0
