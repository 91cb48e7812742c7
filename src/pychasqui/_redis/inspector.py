"""The conversation with Redis about a queue as a whole: counts, pages, single jobs, workers, pausing and purging.

Each answer is bounded. Every call can be sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, NamedTuple

from .._core.defaults import EVENTS_MAX_LEN
from .._core.limits import MOVED_BYTES
from .._wire.entry import find_entry_id_in_uniqueness_key
from .._wire.lenient import read_cut_text, read_entry_id, read_time_ms_or_zero
from ..errors import ReplyError
from . import scripts
from .broker import Broker
from .command_replies import (
    PendingEntry,
    read_idle_ms_by_consumer,
    read_last_delivered_id_by_group,
    read_members_with_scores,
    read_pending_count,
    read_pending_entries,
    read_scan_page,
    read_score,
    read_stored_bytes_list,
)
from .entry_pages import FIRST_PAGE, LAST_ID, choose_length_of_next_page, read_range_in_pages
from .error_actions import ErrorAction, action_for
from .keys import Keys
from .replies import Entry, make_methods_raise_reply_error, read_count, read_range

PURGED_A_CALL = 500
KEYS_A_CALL = 500
MAX_WORKERS = 1000
READ_LATELY_MS = 15_000  # an official consumer waits for 5 s in each read, by default
MAX_GROUPS = 100


class Counts(NamedTuple):
    """How many jobs are where."""

    waiting: int
    active: int  # given to a worker: running, or about to
    delayed: int
    dead: int
    repeatables: int


class HeldEntry(NamedTuple):
    """An entry that a worker holds."""

    entry: Entry | None
    consumer: str
    idle_ms: int
    deliveries: int


@make_methods_raise_reply_error
class InspectorBroker:
    """The conversation about one queue and one group of its consumers, over a broker's connection."""

    def __init__(self, broker: Broker, keys: Keys, group: str) -> None:
        self._broker = broker
        self._call = broker.call
        self._keys = keys
        self._group = group

    async def read_counts(self) -> Counts:
        keys = self._keys
        # In one write, because they are sent in one turn of the loop.
        stream, active, delayed, dead, repeat, paused = await asyncio.gather(
            self._call("XLEN", keys.stream),
            self.count_pending_if_group_exists(),
            self._call("ZCARD", keys.delayed),
            self._call("XLEN", keys.dead),
            self._call("ZCARD", keys.repeat),
            self._call("ZCARD", keys.repeat_paused),
        )
        held = active or 0
        waiting = max(0, read_count(stream) - held)
        return Counts(
            waiting,
            held,
            read_count(delayed),
            read_count(dead),
            read_count(repeat) + read_count(paused),
        )

    async def count_pending_if_group_exists(self) -> int | None:
        """Returns how many entries workers hold; None if the consumer group does not exist."""
        summary = await self._call_or_none_without_group("XPENDING", self._keys.stream, self._group)
        return read_pending_count(summary) if summary else None

    async def read_waiting_page(self, after: str, count: int) -> list[Entry]:
        """Returns entries that no worker has been given, behind the entry `after`."""
        last = await self._read_last_delivered_id()
        start = max(after or "0-0", last, key=read_entry_id)
        if read_entry_id(start) == LAST_ID:  # nothing can lie behind it, and the server refuses to look there
            return []
        return read_range(await self._call("XRANGE", self._keys.stream, f"({start}", "+", "COUNT", count))

    async def read_active_page(self, after: str, count: int) -> list[tuple[str, HeldEntry]]:
        """Returns entries that workers hold, behind the entry `after`."""
        if read_entry_id(after) == LAST_ID:
            return []
        start = f"({after}" if after else "-"
        held = read_pending_entries(
            await self._call_or_none_without_group("XPENDING", self._keys.stream, self._group, start, "+", count) or []
        )
        entries = await self._read_entries_of([pending.entry_id for pending in held])
        return [(pending.entry_id.decode(), _to_held_entry(pending, entries.get(pending.entry_id))) for pending in held]

    async def _read_entries_of(self, ids: list[bytes]) -> dict[bytes, Entry]:
        """Returns the entries that exist. Nearly always nothing lies between held ones, and one range has them all."""
        if not ids:
            return {}
        found = await self._call("XRANGE", self._keys.stream, ids[0], ids[-1], "COUNT", len(ids))
        entries: dict[bytes, Entry] = {entry[0]: entry for entry in read_range(found)}
        missing = (entry_id for entry_id in ids if entry_id not in entries)
        for page in await asyncio.gather(*(self._call("XRANGE", self._keys.stream, one, one) for one in missing)):
            entries.update((entry[0], entry) for entry in read_range(page))
        return entries

    async def read_delivered_pages(self, max_entries: int) -> AsyncIterator[list[Entry]]:
        """Yields pages of the entries that workers have been given. The stream does not have those that are done."""
        last = await self._read_last_delivered_id()
        async for page in read_range_in_pages(self._call, self._keys.stream, "-", last, max_entries):
            yield page

    async def read_delivered_then_waiting_pages(self, max_of_each: int) -> AsyncIterator[list[Entry]]:
        """Yields pages of the entries that workers have been given, then of those that none has been given.

        Which is which is asked once: an entry that is given to a worker meanwhile is on a page all the same.
        """
        last = await self._read_last_delivered_id()
        async for page in read_range_in_pages(self._call, self._keys.stream, "-", last, max_of_each):
            yield page
        if read_entry_id(last) != LAST_ID:  # nothing can lie behind it, and the server refuses to look there
            async for page in read_range_in_pages(self._call, self._keys.stream, f"({last}", "+", max_of_each):
                yield page

    async def read_dead_pages(self, max_entries: int) -> AsyncIterator[list[Entry]]:
        async for page in read_range_in_pages(self._call, self._keys.dead, "-", "+", max_entries):
            yield page

    async def read_delayed_page(self, from_ms: int | None, offset: int, count: int) -> list[tuple[bytes, float]]:
        """Returns members with their due times, from that time on, without the first `offset` of them."""
        start = "-inf" if from_ms is None else from_ms
        return read_members_with_scores(
            await self._call("ZRANGEBYSCORE", self._keys.delayed, start, "+inf", "WITHSCORES", "LIMIT", offset, count)
        )

    async def read_delayed_pages(self, max_members: int) -> AsyncIterator[list[tuple[bytes, float]]]:
        """Yields pages of the members that are due first, with their due times."""
        count, seen = FIRST_PAGE, 0
        while seen < max_members and (page := await self.read_delayed_page(None, seen, min(count, max_members - seen))):
            yield page
            seen += len(page)
            count = choose_length_of_next_page(count, [len(member) for member, _ in page[-FIRST_PAGE:]])

    async def read_dead_page(self, after: str, count: int) -> list[Entry]:
        if read_entry_id(after) == LAST_ID:
            return []
        start = f"({after}" if after else "-"
        return read_range(await self._call("XRANGE", self._keys.dead, start, "+", "COUNT", count))

    async def find_delayed_member(self, job_id: str) -> tuple[bytes, float] | None:
        """Returns a delayed job's member and when it is due."""
        # Unlike GET, MGET passes over keys of other types.
        (member,) = read_stored_bytes_list(await self._call("MGET", self._keys.delayed_member(job_id)), 1)
        due = None if member is None else read_score(await self._call("ZSCORE", self._keys.delayed, member))
        return None if member is None or due is None else (member, due)

    async def find_entry_by_uniqueness_key(self, job_id: str) -> Entry | None:
        """Returns the entry of a job that is the only one of its id, from its uniqueness key."""
        (value,) = read_stored_bytes_list(await self._call("MGET", self._keys.unique(job_id)), 1)
        entry_id = None if value is None else find_entry_id_in_uniqueness_key(value)
        if entry_id is None:
            return None
        found = read_range(await self._call("XRANGE", self._keys.stream, entry_id, entry_id))
        return found[0] if found else None

    async def find_holder_of_entry(self, entry_id: bytes) -> HeldEntry | None:
        held = await self._call_or_none_without_group("XPENDING", self._keys.stream, self._group, entry_id, entry_id, 1)
        return _to_held_entry(read_pending_entries(held)[0], None) if held else None

    async def find_oldest_entry_id_and_server_time(self) -> tuple[bytes, int] | None:
        """Returns the oldest entry that is not done, and the server's time in ms."""
        reply, now_ms = await asyncio.gather(
            self._call("XRANGE", self._keys.stream, "-", "+", "COUNT", 1), self._broker.read_server_time_ms()
        )
        first = read_range(reply)
        return (first[0][0], now_ms) if first else None

    async def read_records_of_living_workers(self) -> list[tuple[str, bytes]]:
        """Returns the names of those workers whose lease is not over, and what each says of itself."""
        groups = [name.decode("utf-8", "replace") for name in await self._read_last_delivered_id_by_group()]
        leases = await asyncio.gather(*map(self._broker.read_lease_ends, {self._group, *groups[:MAX_GROUPS]}))
        now_ms = await self._broker.read_server_time_ms()
        names = {name for of_group in leases for name, lease in of_group.items() if lease >= now_ms}
        alive = [read_cut_text(name) or "" for name in sorted(names)][:MAX_WORKERS]
        if not alive:
            return []
        records = read_stored_bytes_list(await self._call("MGET", *map(self._keys.worker, alive)), len(alive))
        return [(name, record) for name, record in zip(alive, records, strict=True) if record is not None]

    async def count_living_consumers_of_group(self) -> int:
        """Returns how many consumers live: they have a lease or, if they are official ones, have read lately."""
        leases, now_ms, consumers = await asyncio.gather(
            self._broker.read_lease_ends(self._group),
            self._broker.read_server_time_ms(),
            self._call_or_none_without_group("XINFO", "CONSUMERS", self._keys.stream, self._group),
        )
        alive = sum(lease >= now_ms for lease in leases.values())
        seen = read_idle_ms_by_consumer(consumers or [])
        return alive + sum(name not in leases and idle_ms < READ_LATELY_MS for name, idle_ms in seen.items())

    async def read_repeatables_that_fire_next(self, count: int) -> list[tuple[str, int]]:
        """Returns the repeatables that fire next, each with its key and its time, by one command."""
        fires = read_members_with_scores(await self._call("ZRANGE", self._keys.repeat, 0, count - 1, "WITHSCORES"))
        return [(read_cut_text(key) or "", read_time_ms_or_zero(score)) for key, score in fires]

    # Pausing and purging --------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        await self._broker.run_script(scripts.PAUSE, (self._keys.paused,), ())
        await self._publish_pause_hint_if_allowed("pause")

    async def resume(self) -> None:
        await self._call("DEL", self._keys.paused)
        await self._publish_pause_hint_if_allowed("resume")

    async def is_paused(self) -> bool:
        return bool(await self._call("EXISTS", self._keys.paused))

    async def _publish_pause_hint_if_allowed(self, word: str) -> None:
        with suppress(ReplyError):  # a user that may not publish: workers also look at the key by themselves
            await self._broker.publish_and_wait(self._keys.pause_channel, word)

    async def purge_waiting(self) -> int:
        """Removes waiting jobs up to the entry that is the last one now: others may be added all the time."""
        newest = read_range(await self._call("XREVRANGE", self._keys.stream, "+", "-", "COUNT", 1))
        if not newest:
            return 0
        max_removed = read_count(await self._call("XLEN", self._keys.stream))
        return await self._remove_in_batches(
            scripts.PURGE_WAITING,
            (self._keys.stream, self._keys.delayed, self._keys.events),
            max_removed,
            newest[0][0],
            EVENTS_MAX_LEN,
        )

    async def purge_delayed(self) -> int:
        """Removes as many delayed jobs as there are now, the soonest first."""
        max_removed = read_count(await self._call("ZCARD", self._keys.delayed))
        return await self._remove_in_batches(
            scripts.PURGE_DELAYED,
            (self._keys.delayed, self._keys.stream, self._keys.events),
            max_removed,
            EVENTS_MAX_LEN,
        )

    async def _remove_in_batches(
        self, script: scripts.Script, keys: tuple[str, ...], max_removed: int, *words: bytes | int
    ) -> int:
        """Removes jobs call by call, so that no other client waits for long."""
        removed = 0
        while removed < max_removed:
            count = min(PURGED_A_CALL, max_removed - removed)
            some = read_count(
                await self._broker.run_script(script, keys, (count, self._keys.prefix, MOVED_BYTES, *words))
            )
            if some == 0:
                break
            removed += some
        return removed

    async def remove_all_keys_but_keep_groups(self) -> int:
        """Removes every key of the queue, found by its prefix. Groups with consumers stay, with nothing to read."""
        cursor, removed = (
            b"0",
            read_count(await self._broker.run_script(scripts.EMPTY_STREAM, (self._keys.stream,), ())),
        )
        pattern = (
            "".join(f"\\{character}" if character in "*?[]\\" else character for character in self._keys.prefix) + ":*"
        )
        while True:
            cursor, found = read_scan_page(await self._call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000))
            found = [key for key in found if key != self._keys.stream.encode()]
            for start in range(0, len(found), KEYS_A_CALL):
                removed += read_count(await self._call("UNLINK", *found[start : start + KEYS_A_CALL]))
            if cursor == b"0":
                return removed

    async def _read_last_delivered_id(self) -> str:
        return (await self._read_last_delivered_id_by_group()).get(self._group.encode(), b"0-0").decode()

    async def _read_last_delivered_id_by_group(self) -> dict[bytes, bytes]:
        """Returns the last delivered id of each group."""
        return read_last_delivered_id_by_group(
            await self._call_or_none_without_group("XINFO", "GROUPS", self._keys.stream) or []
        )

    async def _call_or_none_without_group(self, *words: Any) -> Any:
        try:
            return await self._call(*words)
        except ReplyError as error:
            if action_for(error) is ErrorAction.NO_GROUP or "no such key" in str(error):
                return None
            raise


def _to_held_entry(pending: PendingEntry, entry: Entry | None) -> HeldEntry:
    return HeldEntry(entry, pending.consumer.decode("utf-8", "replace"), pending.idle_ms, pending.deliveries)
