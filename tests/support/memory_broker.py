"""A Broker that keeps one queue in memory: for tests of the parts that speak to Redis.

This page has reading, acking, settling, reporting and delayed jobs; memory_leases.py the workers and what they hold,
memory_state.py all that is in memory. tests/integration/test_memory_broker.py and test_memory_broker_messages.py hold
that it answers as a real server does. Beside that it has hooks:

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
from collections.abc import Awaitable, Callable, Generator
from typing import Any, cast

from pychasqui._core.outcome import Buried, Rescheduled
from pychasqui._redis.event_batch import EventBatch, EventsOnSend
from pychasqui._redis.reading import ReadInFlight, ReadRequest
from pychasqui._redis.replies import (
    ByteBounds,
    ClaimedEntry,
    OtherLeader,
    Promotion,
    SettledJobs,
)
from pychasqui._wire.event import Event
from pychasqui.errors import RedisTrouble
from tests.support.memory_leases import MemoryLeases
from tests.support.memory_state import LOST, Held, make_sort_key, with_hooks


class MemoryReading:
    """`await reading`, as of a ReadInFlight."""

    def __init__(self, entries: Awaitable[list[Any]], reply_bytes: int) -> None:
        self.reply_bytes = reply_bytes
        self.was_small = False
        self._entries = entries

    def __await__(self) -> Generator[Any, None, list[Any]]:
        return self._entries.__await__()


class MemoryBroker(MemoryLeases):
    # Reading --------------------------------------------------------------------------------------------------------

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
        fresh = [entry_id for entry_id in self.stream if make_sort_key(entry_id) > own.last_read][:count]
        for entry_id in fresh:
            own.last_read = make_sort_key(entry_id)
            own.pending[entry_id] = Held(consumer, 1)
        return [[entry_id, self.stream[entry_id]] for entry_id in fresh]

    @with_hooks
    async def read_now_within_bounds(
        self, group: str, consumer: str, count: int, bounds: ByteBounds
    ) -> list[ClaimedEntry]:
        return [ClaimedEntry(entry_id, fields, 0) for entry_id, fields in self._deliver(group, consumer, count)]

    @with_hooks
    async def may_have_unread_entries(self, group: str) -> bool:
        if group not in self.groups:
            return True
        return any(make_sort_key(entry_id) > self.groups[group].last_read for entry_id in self.stream)

    @with_hooks
    async def try_to_subscribe_to_backlog_hints(self, on_hint: Callable[[], None]) -> bool:
        self.on_backlog = on_hint
        return True

    def publish_backlog_hint(self) -> None:
        """It also comes back to its publisher."""
        self._record("publish_backlog_hint")
        if self.on_backlog is not None:
            asyncio.get_running_loop().call_soon(self.on_backlog)

    @with_hooks
    async def try_to_unblock_read(self, client_id: int, address: str) -> bool:
        """A read here does not block."""
        return bool(client_id) and address == self.server_address

    # Acking and settling --------------------------------------------------------------------------------------------

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

    @with_hooks
    async def reschedule(self, group: str, consumer: str, jobs: list[Rescheduled], events_max_len: int) -> SettledJobs:
        held = [self._is_held(group, consumer, job.entry_id, job.delivery) for job in jobs]
        for job, is_held in zip(jobs, held, strict=True):
            if is_held:
                self._finish(group, [job.entry_id])
                self.delayed.append((self.now + job.delay_ms, job.member))
        return SettledJobs(b"".join(b"1" if is_held else b"0" for is_held in held))

    @with_hooks
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
        if not self.is_connected:
            batch.on_written(len(batch.others) + len(batch.completed), LOST)
        elif (trouble := self.trouble_of.get("write_or_drop_events")) is not None:
            _answer_batch(batch, cast(RedisTrouble, trouble))
        else:
            self._take_events(batch)

    def _take_events(self, batch: EventBatch) -> None:
        self.events += batch.others
        for job_id, name, _, started, *_ in batch.completed:
            self.events += [Event("active", job_id, name)] if started != "" else []
            self.events.append(Event("completed", job_id, name))
        _answer_batch(batch, None)

    def send_progress(self, job_id: str, percent: int, kept_ms: int, on_reply: Callable[[Any], None]) -> None:
        self._record("send_progress", job_id, percent, kept_ms, on_reply)
        if self.is_connected:
            self.progress[job_id] = percent
        on_reply(b"OK" if self.is_connected else LOST)

    def send_log_line(
        self, job_id: str, line: str, max_lines: int, kept_ms: int, on_reply: Callable[[Any], None]
    ) -> None:
        self._record("send_log_line", job_id, line, max_lines, kept_ms, on_reply)
        if self.is_connected:
            self.logs[job_id] = [*self.logs[job_id], line][-max_lines:]
        for reply in (b"1-1", 1):  # of the line, and of the time for which the log is kept
            on_reply(reply if self.is_connected else LOST)

    # Delayed jobs ---------------------------------------------------------------------------------------------------

    @with_hooks
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

    @with_hooks
    async def release_promoter_lease_if_held(self, holder: str) -> None:
        if self.leader is not None and self.leader[0] == holder:
            self.leader = None

    @with_hooks
    async def count_delayed_and_read_overdue_ms(self) -> tuple[int, int]:
        first = min((due_ms for due_ms, _ in self.delayed), default=self.now)
        return len(self.delayed), max(0, self.now - first)

    @with_hooks
    async def try_to_subscribe_to_due_hints(self, on_due: Callable[[float], None]) -> bool:
        self.on_due = on_due
        return True

    def publish_due_hint(self, delay_ms: int) -> None:
        """It also comes back to its publisher."""
        self._record("publish_due_hint", delay_ms)
        self.hints.append(delay_ms)
        if self.on_due is not None:
            asyncio.get_running_loop().call_soon(self.on_due, delay_ms / 1000)


def _answer_batch(batch: EventBatch, trouble: RedisTrouble | None) -> None:
    for events in (batch.others, batch.completed):
        if events:
            batch.on_written(len(events), trouble)
