"""A Broker that keeps one queue in memory: for tests of the parts that speak to Redis.

tests/integration/test_memory_broker.py holds that it answers as a real server does. Beside that it has hooks:

    calls        what was asked, in order; asked("ack") has the arguments of one method's calls, answered("ack") of
                 those that did not raise
    troubles     errors that the next calls raise, one each, whichever method they are of
    trouble_of   by method: an error that every call of it raises, for as long as it stands there
    answer_with  by method: a function, plain or async, that answers in place of what is in memory
    meanwhile    by method: a function, plain or async, that runs while a call is on its way
    line         while this event is cleared, calls are sent and not answered
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

from pychasqui._core.limits import RELEASED
from pychasqui._core.outcome import Buried, Rescheduled
from pychasqui._redis.broker import Broker
from pychasqui._redis.cancellations import Cancellations
from pychasqui._redis.event_batch import EventBatch, EventsOnSend
from pychasqui._redis.reading import ReadInFlight, ReadRequest
from pychasqui._redis.replies import (
    ByteBounds,
    ClaimedEntry,
    OtherLeader,
    Promotion,
    QueueFlags,
    ReleasedEntries,
    RenewalResult,
    SettledJobs,
)
from pychasqui._wire.event import Event
from pychasqui.errors import RedisTrouble, ReplyError

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class Call(NamedTuple):
    method: str
    arguments: tuple[Any, ...]
    thread: int  # where it was made


@dataclass
class Held:
    """An entry that a consumer holds."""

    consumer: str
    deliveries: int


@dataclass
class MemoryGroup:
    last_read: tuple[int, int] = (0, 0)
    pending: dict[bytes, Held] = field(default_factory=dict)


class MemoryReading:
    """`await reading`, as of a ReadInFlight."""

    def __init__(self, entries: Awaitable[list[Any]], reply_bytes: int) -> None:
        self.reply_bytes = reply_bytes
        self.was_small = False
        self._entries = entries

    def __await__(self) -> Generator[Any, None, list[Any]]:
        return self._entries.__await__()


def _answered(method: F) -> F:
    """Record the call, and let the hooks come first."""

    @wraps(method)
    async def answer(self: MemoryBroker, *arguments: Any, **options: Any) -> Any:
        await self._send(method.__name__, *arguments, *options.values())
        self._raise_trouble(method.__name__, *arguments, *options.values())
        if method.__name__ in self.answer_with:
            answer = self.answer_with[method.__name__](*arguments, *options.values())
            return await answer if inspect.isawaitable(answer) else answer
        return await method(self, *arguments, **options)

    return cast(F, answer)


class MemoryBroker(Broker):
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._answered_calls: list[tuple[str, tuple[Any, ...]]] = []
        self.troubles: list[Exception] = []
        self.trouble_of: dict[str, Exception] = {}
        self.answer_with: dict[str, Callable[..., Any]] = {}
        self.meanwhile: dict[str, Callable[..., object]] = {}
        self.line = asyncio.Event()
        self.line.set()
        self.connected_as: int | None = 1  # None: the connection is lost
        self.is_behind = False  # the server is slow to take what is written
        self.client_count: int | None = 4  # connected to the server
        self.timeout_s = 10.0
        self.reply_bytes = 100  # what each reply to read() takes on the line
        self.now = 1_000_000  # the server's clock in ms
        self.stream: dict[bytes, list[bytes]] = {}
        self.groups: dict[str, MemoryGroup] = {}
        self.lease_ends: dict[str, dict[bytes, float]] = defaultdict(dict)  # by group and consumer
        self.delayed: list[tuple[int, bytes]] = []  # due time and member
        self.dead: list[list[bytes]] = []
        self.results: dict[str, bytes] = {}
        self.progress: dict[str, int] = {}
        self.logs: dict[str, list[str]] = defaultdict(list)
        self.events: list[Event] = []
        self.worker_records: dict[str, bytes] = {}
        self.is_queue_paused = False
        self.cancellations = Cancellations()
        self.leader: tuple[str, int] | None = None  # who promotes, and until when
        self.hints: list[int] = []  # what was published of due jobs, in ms
        self.on_due: Callable[[float], None] | None = None
        self.on_pause: Callable[[], None] | None = None
        self.on_backlog: Callable[[], None] | None = None
        self._last_id = 0

    # Hooks ----------------------------------------------------------------------------------------------------------

    def asked(self, method: str) -> list[tuple[Any, ...]]:
        return [call.arguments for call in self.calls if call.method == method]

    def answered(self, method: str) -> list[tuple[Any, ...]]:
        return [arguments for name, arguments in self._answered_calls if name == method]

    def _record(self, method: str, *arguments: Any) -> None:
        self.calls.append(Call(method, arguments, threading.get_ident()))

    async def _send(self, method: str, *arguments: Any) -> None:
        self._record(method, *arguments)
        if not self.line.is_set():
            await self.line.wait()
        if method in self.meanwhile:
            happens = self.meanwhile[method](*arguments)
            if inspect.isawaitable(happens):
                await happens

    def _raise_trouble(self, method: str, *arguments: Any) -> None:
        if method in self.trouble_of:
            raise self.trouble_of[method]
        if self.troubles:
            raise self.troubles.pop(0)
        self._answered_calls.append((method, arguments))

    # The connection -------------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self.connected_as is not None

    @property
    def is_congested(self) -> bool:
        return self.is_behind

    @property
    def server_address(self) -> str:
        return "memory"

    @property
    def client_id(self) -> int | None:
        return self.connected_as

    def set_timeout(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s

    async def close(self) -> None:
        self.connected_as = None

    def request_client_count(self, on_count: Callable[[int | None], None]) -> None:
        self._record("request_client_count")
        on_count(self.client_count)

    # Reading --------------------------------------------------------------------------------------------------------

    def add_entry(self, *fields: bytes) -> bytes:
        """Put an entry into the stream; returns its id."""
        self._last_id += 1
        entry_id = b"%d-0" % self._last_id
        self.stream[entry_id] = list(fields)
        return entry_id

    def add_group(self, group: str) -> None:
        self.groups[group] = MemoryGroup()

    def _group(self, group: str) -> MemoryGroup:
        if group not in self.groups:
            raise ReplyError(f"NOGROUP No such consumer group '{group}'")
        return self.groups[group]

    async def send_read(self, group: str, consumer: str, request: ReadRequest) -> ReadInFlight:
        await self._send("send_read", group, consumer, request)

        async def arrive() -> list[Any]:
            self._raise_trouble("send_read", group, consumer, request)
            if "send_read" in self.answer_with:
                answer = self.answer_with["send_read"](group, consumer, request)
                entries = cast(list[Any], await answer if inspect.isawaitable(answer) else answer)
            else:
                entries = self._deliver(group, consumer, request.max_count)
            reading.was_small = len(entries) < request.small_below
            if entries and reading.was_small:
                request.on_small_batch(entries)
            return entries

        reading = MemoryReading(arrive(), self.reply_bytes)
        return cast(ReadInFlight, reading)

    def _deliver(self, group: str, consumer: str, count: int) -> list[Any]:
        own = self._group(group)
        fresh = [entry_id for entry_id in self.stream if _number(entry_id) > own.last_read][:count]
        for entry_id in fresh:
            own.last_read = _number(entry_id)
            own.pending[entry_id] = Held(consumer, 1)
        return [[entry_id, self.stream[entry_id]] for entry_id in fresh]

    @_answered
    async def read_now_within_bounds(
        self, group: str, consumer: str, count: int, bounds: ByteBounds
    ) -> list[ClaimedEntry]:
        return [ClaimedEntry(entry_id, fields, 0) for entry_id, fields in self._deliver(group, consumer, count)]

    @_answered
    async def may_have_unread_entries(self, group: str) -> bool:
        return any(_number(entry_id) > self._group(group).last_read for entry_id in self.stream)

    @_answered
    async def try_to_subscribe_to_backlog_hints(self, on_hint: Callable[[], None]) -> bool:
        self.on_backlog = on_hint
        return True

    def publish_backlog_hint(self) -> None:
        self._record("publish_backlog_hint")

    @_answered
    async def try_to_unblock_read(self, client_id: int, address: str) -> bool:
        """A read here does not block."""
        return True

    # Acking and settling --------------------------------------------------------------------------------------------

    def _finish(self, group: str, ids: list[bytes]) -> None:
        for entry_id in ids:
            self.stream.pop(entry_id, None)
            if group in self.groups:
                self.groups[group].pending.pop(entry_id, None)

    async def _ack(self, method: str, events: EventsOnSend | None, group: str, *arguments: Any) -> None:
        """Events leave with the ack, also if its reply is lost."""
        await self._send(method, group, *arguments)
        if events is not None:
            self._take_events(events())
        self._raise_trouble(method, group, *arguments)

    def send_ack(self, group: str, ids: list[bytes], events: EventsOnSend | None = None) -> asyncio.Future[None]:
        return asyncio.ensure_future(self.ack(group, ids, events))

    async def ack(self, group: str, ids: list[bytes], events: EventsOnSend | None = None) -> None:
        await self._ack("ack", events, group, ids)
        self._finish(group, ids)

    async def ack_and_release_uniqueness_keys(
        self, group: str, entries: list[tuple[bytes, str]], events: EventsOnSend | None = None
    ) -> None:
        await self._ack("ack_and_release_uniqueness_keys", events, group, entries)
        self._finish(group, [entry_id for entry_id, _ in entries])

    async def ack_and_store_results(
        self,
        group: str,
        ttl_ms: int,
        ids: list[bytes],
        results: list[tuple[str, bytes]],
        unique: list[tuple[bytes, str]],
        events: EventsOnSend | None = None,
    ) -> int:
        await self._ack("ack_and_store_results", events, group, ttl_ms, ids, results, unique)
        if "ack_and_store_results" in self.answer_with:
            return int(self.answer_with["ack_and_store_results"](group, ttl_ms, ids, results, unique))
        self._finish(group, ids)
        self.results.update(results)
        return 0

    def _is_held(self, group: str, consumer: str, entry_id: bytes, delivery: int) -> bool:
        """A lower count is of a group that was rebuilt: the same run has the entry."""
        held = self._group(group).pending.get(entry_id)
        return held is not None and held.consumer == consumer and held.deliveries <= delivery

    @_answered
    async def reschedule(self, group: str, consumer: str, jobs: list[Rescheduled], events_max_len: int) -> SettledJobs:
        held = [self._is_held(group, consumer, job.entry_id, job.delivery) for job in jobs]
        for job, is_held in zip(jobs, held, strict=True):
            if is_held:
                self._finish(group, [job.entry_id])
                self.delayed.append((self.now + job.delay_ms, job.member))
        return SettledJobs(b"".join(b"1" if is_held else b"0" for is_held in held))

    @_answered
    async def bury(
        self, group: str, consumer: str, max_len: int, jobs: list[Buried], events_max_len: int
    ) -> SettledJobs:
        held = [self._is_held(group, consumer, job.entry_id, job.delivery) for job in jobs]
        for job, is_held in zip(jobs, held, strict=True):
            if is_held:
                self._finish(group, [job.entry_id])
                self.dead.append(job.letter)
        return SettledJobs(b"".join(b"1" if is_held else b"0" for is_held in held))

    # Reporting ------------------------------------------------------------------------------------------------------

    def write_or_drop_events(self, batch: EventBatch) -> None:
        self._record("write_or_drop_events", batch)
        if (trouble := self.trouble_of.get("write_or_drop_events")) is not None:
            batch.on_written(len(batch.others) + len(batch.completed), cast(RedisTrouble, trouble))
        else:
            self._take_events(batch)

    def _take_events(self, batch: EventBatch) -> None:
        self.events += batch.others
        for job_id, name, _, started, *_ in batch.completed:
            self.events += [Event("active", job_id, name)] if started != "" else []
            self.events.append(Event("completed", job_id, name))

    def send_progress(self, job_id: str, percent: int, kept_ms: int, on_reply: Callable[[Any], None]) -> None:
        self._record("send_progress", job_id, percent, kept_ms, on_reply)
        self.progress[job_id] = percent

    def send_log_line(
        self, job_id: str, line: str, max_lines: int, kept_ms: int, on_reply: Callable[[Any], None]
    ) -> None:
        self._record("send_log_line", job_id, line, max_lines, kept_ms, on_reply)
        self.logs[job_id] = [*self.logs[job_id], line][-max_lines:]

    # Workers and their leases ---------------------------------------------------------------------------------------

    @_answered
    async def read_server_time_ms(self) -> int:
        return self.now

    @_answered
    async def renew_lease_and_held_entries(
        self,
        group: str,
        consumer: str,
        lease_ms: int,
        held: list[tuple[bytes, int]],
        *,
        record: bytes = b"",
        record_kept_ms: int = 0,
    ) -> RenewalResult:
        self._group(group)
        self.lease_ends[group][consumer.encode()] = self.now + lease_ms
        if record:
            self.worker_records[consumer] = record
        over = sum(end < self.now for end in self.lease_ends[group].values())
        lost = [entry_id for entry_id, delivery in held if not self._is_held(group, consumer, entry_id, delivery)]
        return RenewalResult(
            QueueFlags(self.is_queue_paused, bool(self.cancellations)), len(self.lease_ends[group]) - over, over, lost
        )

    @_answered
    async def report_held_to_rebuild_group(
        self, group: str, consumer: str, lease_ms: int, held: list[tuple[bytes, int]]
    ) -> bool:
        """Without other workers the first report is the last."""
        if group not in self.groups:
            own = self.groups[group] = MemoryGroup(max([(0, 0), *(_number(entry_id) for entry_id, _ in held)]))
            for entry_id in self.stream:
                if _number(entry_id) <= own.last_read:
                    deliveries = dict(held).get(entry_id)
                    own.pending[entry_id] = Held(RELEASED, 0) if deliveries is None else Held(consumer, deliveries)
        return True

    @_answered
    async def find_workers_without_report(self, group: str) -> dict[bytes, float]:
        return {}

    @_answered
    async def read_lease_end_or_zero(self, group: str, consumer: str) -> float:
        return self.lease_ends[group].get(consumer.encode(), 0.0)

    @_answered
    async def leave_group_if_lease_is_same(self, group: str, consumer: str, lease: float) -> bool:
        if self.lease_ends[group].get(consumer.encode(), 0.0) not in (0.0, lease):
            return False
        self.worker_records.pop(consumer, None)
        own = self.groups.get(group, MemoryGroup())
        if any(held.consumer == consumer for held in own.pending.values()):
            self.lease_ends[group][consumer.encode()] = 0.0
            return False
        self.lease_ends[group].pop(consumer.encode(), None)
        return True

    @_answered
    async def read_lease_ends(self, group: str) -> dict[bytes, float]:
        return dict(self.lease_ends[group])

    @_answered
    async def read_ended_leases(self, group: str, now_ms: int) -> dict[bytes, float]:
        return {name: end for name, end in self.lease_ends[group].items() if end < now_ms}

    @_answered
    async def shorten_impossible_leases(self, group: str, lease_ms: int) -> list[bytes]:
        return []

    @_answered
    async def register_queue_or_log_refusal(self) -> None:
        """Nobody reads it in these tests."""

    @_answered
    async def read_queue_flags(self) -> QueueFlags:
        return QueueFlags(self.is_queue_paused, bool(self.cancellations))

    @_answered
    async def read_cancellations_and_remove_outdated(self) -> Cancellations:
        """The notes are those that the test has set."""
        return self.cancellations

    @_answered
    async def try_to_subscribe_to_pause_and_cancel_hints(self, on_hint: Callable[[], None]) -> bool:
        """Messages come in the loop that has subscribed."""
        loop = asyncio.get_running_loop()
        self.on_pause = lambda: cast(None, loop.call_soon_threadsafe(on_hint))
        return True

    # Pending entries ------------------------------------------------------------------------------------------------

    @_answered
    async def count_held_entries_by_consumer(self, group: str) -> dict[bytes, int]:
        return dict(Counter(held.consumer.encode() for held in self._group(group).pending.values()))

    @_answered
    async def read_last_pending_id(self, group: str) -> bytes | None:
        return max(self._group(group).pending, key=_number, default=None)

    def _pending(self, group: str, consumer: str, after: bytes, last: bytes, count: int) -> list[tuple[bytes, Held]]:
        low, high = _number(after), (2**64, 0) if last == b"+" else _number(last)
        own = sorted(self._group(group).pending.items(), key=lambda item: _number(item[0]))
        return [one for one in own if one[1].consumer == consumer and low < _number(one[0]) <= high][:count]

    @_answered
    async def list_pending_page(
        self, group: str, consumer: str, after: bytes, last: bytes, count: int, bounds: ByteBounds
    ) -> list[ClaimedEntry]:
        page = self._pending(group, consumer, after, last, count)
        return [ClaimedEntry(entry_id, self.stream.get(entry_id), held.deliveries) for entry_id, held in page]

    @_answered
    async def list_pending_id_page(
        self, group: str, consumer: str, after: bytes, last: bytes, count: int
    ) -> list[tuple[bytes, int]]:
        return [(entry_id, held.deliveries) for entry_id, held in self._pending(group, consumer, after, last, count)]

    def _claim(self, group: str, consumer: str, dead: str, count: int) -> list[ClaimedEntry]:
        claimed: list[ClaimedEntry] = []
        for entry_id, held in self._pending(group, dead, b"", b"+", count):
            claimed.append(ClaimedEntry(entry_id, self.stream.get(entry_id), held.deliveries))
            self._group(group).pending[entry_id] = Held(consumer, held.deliveries + 1)
        return claimed

    @_answered
    async def take_over_if_lease_is_same(
        self, group: str, consumer: str, dead: bytes, lease: float, min_idle_ms: int, count: int, bounds: ByteBounds
    ) -> list[ClaimedEntry] | None:
        """Nothing is idle here: what a worker without a lease holds is taken at once."""
        if self.lease_ends[group].get(dead) != lease:
            return None
        claimed = self._claim(group, consumer, dead.decode(), count)
        if not self._pending(group, dead.decode(), b"", b"+", 1):
            del self.lease_ends[group][dead]
        return claimed

    @_answered
    async def claim_idle_without_lease(
        self, group: str, consumer: str, min_idle_ms: int, count: int, bounds: ByteBounds
    ) -> list[ClaimedEntry]:
        claimed: list[ClaimedEntry] = []
        for holder in await self.count_held_entries_by_consumer(group):
            if holder != consumer.encode() and holder not in self.lease_ends[group]:
                claimed += self._claim(group, consumer, holder.decode(), count - len(claimed))
        return claimed

    @_answered
    async def increment_delivery_counts_if_same(self, group: str, consumer: str, seen: list[tuple[bytes, int]]) -> None:
        for entry_id, delivery in seen:
            held = self._group(group).pending.get(entry_id)
            if held is not None and (held.consumer, held.deliveries) == (consumer, delivery):
                held.deliveries += 1

    @_answered
    async def release_some_entries(
        self, group: str, consumer: str, held: list[tuple[bytes, int]], deadline_ms: int
    ) -> ReleasedEntries:
        if self.now > deadline_ms:
            return ReleasedEntries(0, 0)
        mine = [(one, earlier) for one, earlier in held if self._is_held(group, consumer, one, earlier + 1)]
        for entry_id, earlier in mine:
            self._group(group).pending[entry_id] = Held(RELEASED, earlier)
            self.lease_ends[group][RELEASED.encode()] = 0.0
        return ReleasedEntries(len(mine), len(held))

    # Delayed jobs ---------------------------------------------------------------------------------------------------

    @_answered
    async def try_to_lead_and_promote_batch(
        self, holder: str, lease_ms: int, batch: int, *, events_max_len: int
    ) -> Promotion:
        if self.leader is not None and self.leader[0] != holder and self.leader[1] > self.now:
            return Promotion(False, 0, 0, self.leader[1] - self.now, OtherLeader(self.leader[0], False, 0))
        self.leader = (holder, self.now + lease_ms)
        due = sorted(one for one in self.delayed if one[0] <= self.now)[:batch]
        for one in due:
            self.delayed.remove(one)
            end = 4 + int.from_bytes(one[1][:4], "little")
            self.add_entry(b"d", one[1][end:], *((b"n", one[1][4:end]) if end > 4 else ()))
        left = min((due_ms for due_ms, _ in self.delayed), default=None)
        return Promotion(True, len(due), 0, -1 if left is None else max(0, left - self.now))

    @_answered
    async def release_promoter_lease_if_held(self, holder: str) -> None:
        if self.leader is not None and self.leader[0] == holder:
            self.leader = None

    @_answered
    async def count_delayed_and_read_overdue_ms(self) -> tuple[int, int]:
        first = min((due_ms for due_ms, _ in self.delayed), default=self.now)
        return len(self.delayed), max(0, self.now - first)

    @_answered
    async def try_to_subscribe_to_due_hints(self, on_due: Callable[[float], None]) -> bool:
        self.on_due = on_due
        return True

    def publish_due_hint(self, delay_ms: int) -> None:
        self._record("publish_due_hint", delay_ms)
        self.hints.append(delay_ms)


def _number(entry_id: bytes) -> tuple[int, int]:
    ms, _, sequence = entry_id.partition(b"-")
    return int(ms or 0), int(sequence or 0)
