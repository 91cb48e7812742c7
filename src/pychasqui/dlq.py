"""Dead letters: lists, searches, replays and removes them.

Letters are read page by page, so a million of them take no more memory than a hundred. A search ends at the letter that
is the newest when it begins, so a job that dies again during a replay is not replayed twice. A letter that cannot be
decoded is listed and can be removed; a replay skips it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from ._core.checks import check_int, check_is_iterable, check_text
from ._core.limits import MAX_U64
from ._redis.dlq import DlqBroker
from ._redis.replies import Entry
from ._wire.dead_letter import DeadJob, encode_letter_as_read_or_changed, read_dead_letter
from ._wire.envelope import decode_envelope
from ._wire.lenient import read_int
from ._wire.msgpack import encode_data
from .errors import DecodeError, InvalidArgument, InvalidType

__all__ = ["DeadJob", "DeadLetters", "read_letter"]

OnProgress = Callable[[int], None]
PAGE = 200
FIRST_PAGE = 25  # later pages depend on the size of the letters on this one
PAGE_BYTES = 1024 * 1024  # about how much one call reads or replays


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects the dead letters that meet all given conditions."""

    ids: frozenset[str] | None = None
    job_id: str | None = None
    name: str | None = None
    reason: str | None = None
    error_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    up_to: str | None = None  # the id of the newest letter

    def includes(self, job: DeadJob) -> bool:
        """Whether the letter meets all conditions but `since` and `until`, which bound the range that is read."""
        return (
            (self.ids is None or job.dlq_id in self.ids)
            and (self.job_id is None or job.job_id == self.job_id)
            and (self.name is None or job.name == self.name)
            and (self.reason is None or job.reason == self.reason)
            and (self.error_type is None or job.error_type == self.error_type)
            and (self.up_to is None or _parse_letter_id(job.dlq_id) <= _parse_letter_id(self.up_to))
        )


_CONDITIONS_OF_TEXT = ("job_id", "name", "reason", "error_type", "up_to")
_CONDITIONS = ", ".join(Filter.__dataclass_fields__)


class DeadLetters:
    """`queue.dlq`. Every method takes the conditions `ids`, `job_id`, `name`, `reason`, `error_type`, `since`, `until`
    and `up_to`, the id of the newest letter to take. A condition that is None is refused."""

    def __init__(
        self, get_broker: Callable[[], DlqBroker], before_replay: Callable[[list[str]], Awaitable[None]]
    ) -> None:
        self._get_broker = get_broker
        self._before_replay = before_replay  # called with the ids of jobs that are about to be replayed

    async def search(self, *, after: str = "", **which: Any) -> AsyncIterator[DeadJob]:
        """Yields the dead letters that match, oldest first; starts after the letter with the id `after`."""
        chosen = _check_and_make_filter(which)
        if after and _parse_letter_id(after) == (MAX_U64, MAX_U64):
            return  # nothing is behind it, and Redis refuses to look
        async for entry in (
            self._read_entries_by_id(chosen, chosen.ids)
            if chosen.ids is not None
            else self._read_entries_in_time_range(chosen, after)
        ):
            job = read_dead_letter(entry)
            if chosen.includes(job) and (not after or _parse_letter_id(job.dlq_id) > _parse_letter_id(after)):
                yield job

    async def _read_entries_by_id(self, chosen: Filter, ids: frozenset[str]) -> AsyncIterator[Entry]:
        first_ms, last_ms = _choose_range_ms(chosen)
        for dlq_id in sorted(ids, key=_parse_letter_id):
            if first_ms <= _parse_letter_id(dlq_id)[0] <= last_ms:
                for entry in await self._get_broker().read_page(dlq_id, dlq_id, 1):
                    yield entry

    async def _read_entries_in_time_range(self, chosen: Filter, after: str) -> AsyncIterator[Entry]:
        first_ms, last_ms = _choose_range_ms(chosen)
        start = f"({after}" if after and _parse_letter_id(after) > (first_ms, 0) else str(first_ms)
        # The end is fixed before the first page: a replay may produce new letters as fast as they are read.
        end = min(await self._get_broker().read_newest_id(), f"{last_ms}-{MAX_U64}", key=_parse_letter_id)
        count = FIRST_PAGE
        while entries := await self._get_broker().read_page(start, end, count):
            for entry in entries:
                yield entry
            last = entries[-1][0].decode()
            if last == end:
                return
            start, count = f"({last}", _choose_page_size(entries)

    async def page(self, *, limit: int = 100, after: str = "", **which: Any) -> list[DeadJob]:
        """Returns up to `limit` letters that match. For the next page pass the dlq_id of the last one as `after`."""
        check_int("limit", limit, 0)
        found: list[DeadJob] = []
        async for job in self.search(after=after, **which):
            if len(found) >= limit:
                break
            found.append(job)
        return found

    async def count(self, **which: Any) -> int:
        """Counts the letters that match."""
        if not which:
            return await self._get_broker().count()
        return sum([1 async for _ in self.search(**which)])

    async def count_by_reason(self, **which: Any) -> dict[str, int]:
        """Counts the letters that match, by their reason."""
        return dict(Counter([job.reason async for job in self.search(**which)]))

    async def dropped(self) -> int:
        """Returns how many letters were dropped because the stream of dead letters was full."""
        return await self._get_broker().read_dropped_count()

    async def replay(
        self,
        *,
        limit: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **which: Any,
    ) -> int:
        """Adds the matching jobs to the queue again as if they had never run; returns how many.

        limit         how many jobs to replay
        rate          how many jobs to replay per second
        dry_run       count them only
        on_progress   called after each batch with how many are replayed so far

        Each letter is replayed once, even if several processes replay at the same time. Letters that cannot be decoded
        stay.
        """
        if rate is not None and not isinstance(rate, int | float):
            raise InvalidType(f"rate must be a number of jobs a second, not {type(rate).__name__}")
        if rate is not None and (isinstance(rate, bool) or not 0 < rate < float("inf")):
            raise InvalidArgument(f"rate is {rate!r}, must be a finite number above 0")
        moved, size, began = 0, 0, monotonic()
        batch: list[tuple[str, bytes, bytes]] = []
        max_moved = check_int("limit", limit, 0) if limit is not None else float("inf")
        async for job in self.search(**which):
            if moved + len(batch) >= max_moved:
                moved, size = await self._replay_or_count_and_clear_batch(batch, dry_run, moved, on_progress), 0
                if moved >= max_moved:
                    break
            try:
                batch.append((job.dlq_id, job.replayed(), job.name.encode()))
            except DecodeError:
                continue
            size += len(batch[-1][1])
            if len(batch) >= (PAGE if rate is None else 1) or size >= PAGE_BYTES:
                moved, size = await self._replay_or_count_and_clear_batch(batch, dry_run, moved, on_progress), 0
                if rate is not None and not dry_run:
                    await asyncio.sleep(max(0.0, began + moved / rate - monotonic()))
        return await self._replay_or_count_and_clear_batch(batch, dry_run, moved, on_progress)

    async def replay_with(self, dlq_id: str, data: Any) -> bool:
        """Replays one job with other data; False if the letter does not exist."""
        async for job in self.search(ids=[dlq_id]):
            return (
                await self._replay_or_count_and_clear_batch(
                    [(dlq_id, job.replayed(encode_data(data)), job.name.encode())]
                )
                == 1
            )
        return False

    async def remove(self, *, dry_run: bool = False, on_progress: OnProgress | None = None, **which: Any) -> int:
        """Removes the matching letters; returns how many. With `dry_run` it only counts them.

        `on_progress` is called after each batch with how many are removed so far.
        """
        if not which:
            raise InvalidArgument(f"remove needs a condition ({_CONDITIONS}); purge() removes all")
        return await self._remove_or_count_matching(which, dry_run, on_progress)

    async def purge(self, *, dry_run: bool = False) -> int:
        """Removes all letters; returns how many. With `dry_run` it only counts them."""
        return await self._remove_or_count_matching({}, dry_run, None)

    async def restore(self, letters: Iterable[DeadJob]) -> int:
        """Adds letters that were read before, of this queue or another; returns how many.

        They get new ids, and so the time of their restoring as the time of their death. A second call adds them twice.
        """
        check_is_iterable("letters", letters, "of DeadJob, as page() returns them")
        written = [encode_letter_as_read_or_changed(_check_letter(letter)) for letter in letters]
        for first in range(0, len(written), PAGE):
            await self._get_broker().add_letters(written[first : first + PAGE])
        return len(written)

    async def _remove_or_count_matching(
        self, which: dict[str, Any], dry_run: bool, on_progress: OnProgress | None
    ) -> int:
        removed = 0
        batch: list[str] = []
        async for job in self.search(**which):
            batch.append(job.dlq_id)
            if len(batch) == PAGE:
                removed = await self._remove_or_count_and_clear_batch(batch, dry_run, removed, on_progress)
        return await self._remove_or_count_and_clear_batch(batch, dry_run, removed, on_progress)

    async def _remove_or_count_and_clear_batch(
        self, batch: list[str], dry_run: bool, removed: int, on_progress: OnProgress | None
    ) -> int:
        """Removes the batch and empties it; returns how many are removed so far, of which `removed` were before."""
        if not batch:
            return removed
        removed += len(batch) if dry_run else await self._get_broker().remove(batch)
        batch.clear()
        if on_progress is not None:
            on_progress(removed)
        return removed

    async def _replay_or_count_and_clear_batch(
        self,
        batch: list[tuple[str, bytes, bytes]],
        dry_run: bool = False,
        moved: int = 0,
        on_progress: OnProgress | None = None,
    ) -> int:
        """Replays the batch and empties it; returns how many are replayed so far, of which `moved` were before."""
        if not batch:
            return moved
        if not dry_run:
            await self._before_replay([decode_envelope(envelope).id for _, envelope, _ in batch])
        moved += len(batch) if dry_run else await self._get_broker().replay(batch)
        batch.clear()
        if on_progress is not None:
            on_progress(moved)
        return moved


def _check_letter(letter: Any) -> DeadJob:
    if not isinstance(letter, DeadJob):
        raise InvalidType(f"restore() takes DeadJobs, as page() returns them, not {type(letter).__name__}")
    return letter


def read_letter(raw_fields: list[bytes]) -> DeadJob:
    """Reads a letter from its fields, for restore(); it has no id yet."""
    return read_dead_letter([b"0-0", raw_fields])


def _check_and_make_filter(which: dict[str, Any]) -> Filter:
    # A letter that cannot be decoded has the job_id None: that must not select all letters.
    missing = sorted(name for name, value in which.items() if value is None)
    if missing:
        raise InvalidArgument(f"{missing[0]} is None: leave out a condition that has no value")
    ids = which.pop("ids", None)
    if ids is not None and (isinstance(ids, str) or not isinstance(ids, Collection)):
        raise InvalidType(f"ids must be a collection of dead letter ids, not {ids!r}"[:300])
    texts = {name: value for name, value in which.items() if name in _CONDITIONS_OF_TEXT}
    for name, value in (*texts.items(), *(("an id in ids", one) for one in ids or ())):
        check_text(name, value)
    try:
        return Filter(ids=None if ids is None else frozenset(ids), **which)
    except TypeError:
        raise InvalidArgument(f"unknown condition among {sorted(which)}: the conditions are {_CONDITIONS}") from None


def _choose_range_ms(chosen: Filter) -> tuple[int, int]:
    """Returns the first and the last ms of `since` and `until`."""
    first_ms = 0 if chosen.since is None else max(0, _to_epoch_ms(chosen.since))
    last_ms = MAX_U64 if chosen.until is None else max(0, _to_epoch_ms(chosen.until) - 1)
    return first_ms, last_ms


def _choose_page_size(entries: list[Entry]) -> int:
    """Returns how many letters of this size make a page."""
    size = sum(len(word) for entry in entries for word in entry[1] or ())
    return max(1, min(PAGE, PAGE_BYTES * len(entries) // max(1, size)))


def _to_epoch_ms(moment: datetime) -> int:
    """Returns ms since 1970. A datetime without a time zone is UTC, as everywhere in this package."""
    if not isinstance(moment, datetime):
        raise InvalidType(f"since and until must be datetimes, not {moment!r}"[:300])
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _parse_letter_id(dlq_id: str) -> tuple[int, int]:
    ms, _, sequence = check_text("the id of a dead letter", dlq_id).partition("-")
    order = read_int(ms, 0, MAX_U64), read_int(sequence or "0", 0, MAX_U64)
    if order[0] is None or order[1] is None:
        raise InvalidArgument(f"{dlq_id[:100]!r} is not the id of a dead letter")
    return order[0], order[1]
