"""Inspector: counts and lists jobs, finds a job by its id, lists workers. The cost of every call is bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from ._core.checks import check_int, check_job_id_of_lookup
from ._core.printable import printable
from ._redis.inspector import Counts, HeldEntry, InspectorBroker
from ._redis.job_finder import find_entry_in_pages
from ._redis.replies import Entry
from ._wire.dead_letter import read_dead_letter
from ._wire.entry import read_envelope_and_name_or_empty
from ._wire.envelope import PUT_BACKS, decode_envelope, read_put_back_count
from ._wire.lenient import read_entry_id, read_time_ms_or_zero
from ._wire.member import split_delayed_member
from ._wire.msgpack import decode_data
from ._wire.worker_record import WorkerInfo, read_worker_record_or_error
from .errors import DecodeError, InvalidArgument

__all__ = ["Counts", "Inspector", "JobView", "Page", "State", "WorkerInfo"]

State = Literal["waiting", "active", "delayed", "dead"]
STATES = ("waiting", "active", "delayed", "dead")
MAX_LIMIT = 1000  # jobs of one page
_ENTRY_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
MAX_SEARCHED = 1000  # entries of each state that get_job() reads to find a job without an index
MAX_DELIVERED = 10_000  # entries that find_delivered() reads
MAX_SENTENCE_CHARS = 500


@dataclass(frozen=True, slots=True)
class JobView:
    """One job in the queue. A job that cannot be decoded has an `error` and no id."""

    state: str
    id: str | None
    name: str = ""
    data: Any = None
    attempt: int = 0
    created_at_ms: int = 0
    entry_id: str | None = None  # in the stream of jobs, or of dead letters
    due_ms: int | None = None  # delayed: when it is due
    worker: str | None = None  # active: the worker that holds it
    idle_ms: int | None = None  # active: time since it was delivered or its hold was renewed
    deliveries: int = 0  # active: how often it was delivered
    reason: str | None = None  # dead: why it was buried
    # Dead: what its handler raised. Delayed: that no worker has known its name. Any state: why it cannot be decoded.
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs of one state. Pass `next` as `after` to get the next page; it is None on the last page."""

    jobs: list[JobView]
    next: str | None


class Inspector:
    """Implements Queue.counts(), .jobs(), .get_job() and the other methods that look into a queue."""

    def __init__(self, get_broker: Callable[[], InspectorBroker]) -> None:
        self._get_broker = get_broker

    async def counts(self) -> Counts:
        """Counts the jobs in each state, and the repeatables."""
        return await self._get_broker().read_counts()

    async def jobs(self, state: State, after: str = "", limit: int = 100) -> Page:
        """Returns a page of the jobs of one state."""
        check_int("limit", limit, 1, MAX_LIMIT)
        if state not in STATES:
            raise InvalidArgument(f"state is {state!r}, must be one of {', '.join(STATES)}"[:300])
        if state == "delayed":
            return await self._read_delayed_page(after, limit)
        if state == "active":
            found = await self._get_broker().read_active_page(check_page_position(after), limit)
            return _make_page(
                [_make_active_view(entry_id, held) for entry_id, held in found], limit, [one[0] for one in found]
            )
        read = self._get_broker().read_waiting_page if state == "waiting" else self._get_broker().read_dead_page
        entries = await read(check_page_position(after), limit)
        return _make_page(
            [make_entry_view(state, entry) for entry in entries], limit, [entry[0].decode() for entry in entries]
        )

    async def _read_delayed_page(self, after: str, limit: int) -> Page:
        # By time and not by rank: jobs that become due between two pages leave at the front.
        due_ms, seen = map(int, check_page_position(after).split("-")) if after != "" else (0, 0)
        members = await self._get_broker().read_delayed_page(due_ms if after else None, seen, limit)
        jobs = [make_delayed_view(member, due) for member, due in members]
        if len(members) < limit:
            return Page(jobs, None)
        last_ms = read_time_ms_or_zero(members[-1][1])
        of_last = sum(due >= 0 and read_time_ms_or_zero(due) == last_ms for _, due in members)
        return Page(jobs, f"{last_ms}-{of_last + (seen if after and last_ms == due_ms else 0)}")

    async def get_job(self, job_id: str) -> JobView | None:
        """Finds a job by its id; None if it is done, or was not found.

        Delayed jobs and jobs with a unique id are found at once. For others it reads the first MAX_SEARCHED entries of
        each state, and does not find a job behind them.
        """
        broker, job_id = self._get_broker(), check_job_id_of_lookup(job_id)

        def find_match(page: list[Entry]) -> Entry | None:
            return find_entry(page, job_id)

        if (view := await find_delayed_by_index(broker, job_id)) is not None:
            return view
        # A uniqueness key may name the entry of another job if another program has written it.
        indexed = await broker.find_entry_by_uniqueness_key(job_id)
        entry = None if indexed is None else find_entry([indexed], job_id)
        if entry is None:
            entry = await find_entry_in_pages(broker.read_delivered_then_waiting_pages(MAX_SEARCHED), find_match)
        if entry is not None:
            held = await broker.find_holder_of_entry(entry[0])
            return (
                make_entry_view("waiting", entry)
                if held is None
                else _make_active_view(entry[0].decode(), held._replace(entry=entry))
            )
        entry = await find_entry_in_pages(broker.read_dead_pages(MAX_SEARCHED), find_match)
        if entry is not None:
            return make_entry_view("dead", entry)
        # It may have failed while it was looked for, or another program has delayed it, which writes no index.
        return await find_delayed_by_index(broker, job_id) or await find_among_first_delayed(broker, job_id)

    async def describe_where_job_is(self, job_id: str) -> str:
        """Says in a sentence where a job is and how many workers live, for the error of a wait that timed out."""
        view, alive = await self.get_job(job_id), await self._get_broker().count_living_consumers_of_group()
        if view is None:
            state = "is done, or was never added, or is not among the first thousand of its state"
        elif view.state == "waiting":
            state = "waits in the queue"
        elif view.state == "active":
            state = f"is held by worker {view.worker!r}, which was last active {(view.idle_ms or 0) / 1000:.1f} s ago"
        elif view.state == "delayed":
            state = f"is delayed, to run at {view.due_ms} ms since 1970"
        else:
            state = f"is dead: {view.reason or 'no reason given'}{f', {view.error}' if view.error else ''}"
        workers = f"{alive} {'worker lives' if alive == 1 else 'workers live'}" if alive else "no worker lives"
        return printable(f"it {state}; {workers}", MAX_SENTENCE_CHARS)

    async def find_delivered(self, job_ids: Iterable[str]) -> set[str]:
        """Returns those of the ids that are delivered and not acked.

        It reads up to MAX_DELIVERED entries. If there are more, an id that was not found may be among them, and is
        returned, too.
        """
        missing, found, seen = set(job_ids), set[str](), 0
        async for entries in self._get_broker().read_delivered_pages(MAX_DELIVERED):
            seen += len(entries)
            found |= missing.intersection(map(_read_job_id_if_valid, entries))
            missing -= found
            if not missing:
                return found
        return found if seen < MAX_DELIVERED else found | missing

    async def workers(self) -> list[WorkerInfo]:
        """Lists the living workers, as they describe themselves. One whose record cannot be read has an `error`."""
        return [
            read_worker_record_or_error(name, raw)
            for name, raw in await self._get_broker().read_records_of_living_workers()
        ]

    async def purge(self, state: State) -> int:
        """Removes the waiting or the delayed jobs for good, and returns how many."""
        if state == "waiting":
            return await self._get_broker().purge_waiting()
        if state == "delayed":
            return await self._get_broker().purge_delayed()
        raise InvalidArgument(
            f"state is {state!r}, must be waiting, delayed or dead: running jobs cannot be removed"[:300]
        )

    async def next_fires(self, limit: int) -> list[tuple[str, int]]:
        """Returns the keys of the repeatables that fire next, each with its time in ms since 1970."""
        return await self._get_broker().read_repeatables_that_fire_next(limit)

    async def oldest_age_ms(self) -> int | None:
        """Returns how long the oldest job that is not done has been in the stream; None if there is none."""
        found = await self._get_broker().find_oldest_entry_id_and_server_time()
        if found is None:
            return None
        entry_id, now_ms = found
        return max(0, now_ms - read_entry_id(entry_id)[0])


def _make_page(jobs: list[JobView], limit: int, ids: list[str]) -> Page:
    return Page(jobs, ids[-1] if len(ids) == limit else None)


def check_page_position(after: Any) -> str:
    if not isinstance(after, str) or (after and not _ENTRY_ID.fullmatch(after)):
        raise InvalidArgument(f"after is {after!r}, must be the `next` of a page of the same state"[:300])
    return after


def _read_job_id_if_valid(entry: Entry) -> str | None:
    try:
        return decode_envelope(read_envelope_and_name_or_empty(entry)[0]).id
    except DecodeError:
        return None


def find_entry(entries: list[Entry], job_id: str) -> Entry | None:
    """Returns the entry of that job. Decodes only entries that contain the bytes of the id, which are few."""
    wanted = job_id.encode()
    # One search in all words of a page takes a tenth of the time of one search in each.
    if wanted not in b"".join([word for entry in entries for word in entry[1] or ()]):
        return None
    for entry in entries:
        for word in entry[1] or ():
            if (
                wanted in word
                and _make_view_of_envelope("", read_envelope_and_name_or_empty(entry)[0], "").id == job_id
            ):
                return entry
    return None


async def find_delayed_by_index(broker: InspectorBroker, job_id: str) -> JobView | None:
    """Returns the delayed job that the index has under this id. Another program may have written another job there."""
    found = await broker.find_delayed_member(job_id)
    view = None if found is None else make_delayed_view(*found)
    return view if view is not None and view.id == job_id else None


async def find_among_first_delayed(broker: InspectorBroker, job_id: str) -> JobView | None:
    """Returns the delayed job of this id if it is among the first MAX_SEARCHED."""
    wanted = job_id.encode()
    async for page in broker.read_delayed_pages(MAX_SEARCHED):
        for member, due in page:
            if wanted in member and (view := make_delayed_view(member, due)).id == job_id:
                return view
    return None


def make_entry_view(state: str, entry: Entry, **more: Any) -> JobView:
    envelope, name = read_envelope_and_name_or_empty(entry)
    view = _make_view_of_envelope(state, envelope, name, entry_id=entry[0].decode(), **more)
    if state != "dead":
        return view
    letter = read_dead_letter(entry)
    error = ": ".join(word for word in (letter.error_type, letter.error) if word)
    return replace(view, reason=letter.reason or None, error=error or view.error)


def _make_active_view(entry_id: str, pending: HeldEntry) -> JobView:
    entry = pending.entry or [entry_id.encode(), []]
    return make_entry_view(
        "active", entry, worker=pending.consumer, idle_ms=pending.idle_ms, deliveries=pending.deliveries
    )


def make_delayed_view(member: bytes, due: float) -> JobView:
    try:
        name, envelope = split_delayed_member(member)
    except DecodeError as error:
        return JobView("delayed", None, due_ms=read_time_ms_or_zero(due), error=str(error))
    return _make_view_of_envelope("delayed", envelope, name, due_ms=read_time_ms_or_zero(due))


def _describe_unknown_task_if_put_back(extras: bytes) -> str | None:
    """What a worker has logged about a job whose name it does not know; None if none has."""
    if not (put_backs := read_put_back_count(extras, PUT_BACKS)):
        return None
    times = "once" if put_backs == 1 else f"{put_backs} times"
    return f"put back {times}: the workers that got it have no task of this name"


def _make_view_of_envelope(state: str, raw: bytes, name: str, **more: Any) -> JobView:
    try:
        envelope = decode_envelope(raw)
    except DecodeError as error:
        return JobView(state, None, name, error=str(error), **more)
    try:
        data = decode_data(envelope.payload)
        problem = _describe_unknown_task_if_put_back(envelope.extras) if state == "delayed" else None
    except DecodeError as error:
        data, problem = None, str(error)
    return JobView(state, envelope.id, name, data, envelope.attempt, envelope.created_at_ms, error=problem, **more)
