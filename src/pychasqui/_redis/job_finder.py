"""The conversation with Redis about where one job is. Each answer is bounded, and every call can be sent again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from .._core.ids import read_ulid_time_ms
from .._wire.entry import read_envelope_and_name_or_empty
from .._wire.envelope import decode_envelope
from .._wire.lenient import read_entry_id
from ..errors import DecodeError
from .broker import Broker
from .entry_pages import LAST_ID, read_entry_range, read_range_in_pages
from .keys import Keys
from .replies import Entry, make_methods_raise_reply_error

MAX_ENTRIES_BEFORE = 500  # entries that are read before the place where a job should be
MAX_ENTRIES_BEHIND = 20_000  # entries that are read from there on: a process makes up to 10,000 ids in a millisecond
MAX_ADD_JITTER_MS = 2  # processes that add at the same time mix their jobs
MAX_CLOCK_LEAD_MS = 60_000  # by how much the clock of the process that added a job may be ahead of the server's
FIRST_PROBE_OFFSETS_MS = (-MAX_CLOCK_LEAD_MS, -1000, -50, 0, 5, 50, 500, 5000, 60_000, 3_600_000)
PROBES_PER_ROUND = 6  # places of each further look
ENTRIES_PER_PROBE = 5  # entries of one place: one that was promoted or retried is older than its neighbours
MAX_PROBE_ROUNDS = 20
MIN_GAP_TO_BISECT = 64  # ids between two places of which one is before the job and one behind it: the rest is read
MAX_IDS_PER_MS = 2**14

Match = Callable[[list[Entry]], Entry | None]  # finds the entry of a job on a page


@make_methods_raise_reply_error
class JobFinderBroker:
    """Reads pieces of a queue's streams: from an id onwards, or from an id back to older entries."""

    def __init__(self, broker: Broker, keys: Keys) -> None:
        self._call = broker.call
        self._keys = keys

    async def read_entries_from_id(self, start: str, count: int) -> list[Entry]:
        """Returns the first entries of the stream of jobs from that id on."""
        return await self._read_page(self._keys.stream, start, count, is_back=False)

    async def read_entries_newest_first(self, count: int) -> list[Entry]:
        """Returns the newest entries of the stream of jobs, newest first."""
        return await self._read_page(self._keys.stream, "+", count, is_back=True)

    def read_entry_pages(self, start: str, max_entries: int, *, is_back: bool = False) -> AsyncIterator[list[Entry]]:
        """Yields pages of the stream of jobs, up to `max_entries` entries in all."""
        return self._read_pages(self._keys.stream, start, max_entries, is_back)

    def read_letter_pages(self, start: str, max_entries: int, *, is_back: bool = False) -> AsyncIterator[list[Entry]]:
        """Yields pages of the dead letters."""
        return self._read_pages(self._keys.dead, start, max_entries, is_back)

    def read_event_pages(self, start: str, max_entries: int, *, is_back: bool = False) -> AsyncIterator[list[Entry]]:
        """Yields pages of the events."""
        return self._read_pages(self._keys.events, start, max_entries, is_back)

    async def find_entry_created_around(self, find_match: Match, created_at_ms: int) -> Entry | None:
        """Looks for the entry of a job that was made in that millisecond, alone or in a bulk of many thousands.

        Reads from about the first such entry on, up to MAX_ENTRIES_BEHIND, and then MAX_ENTRIES_BEFORE before it.
        """
        start = await self._estimate_first_entry_id_created_at(created_at_ms)
        async for page in self.read_entry_pages(start, MAX_ENTRIES_BEHIND):
            if (entry := find_match(page)) is not None:
                return entry
            if min(map(_read_created_at_ms_or_zero, page[-ENTRIES_PER_PROBE:])) > created_at_ms + MAX_ADD_JITTER_MS:
                break
        return await find_entry_in_pages(
            self.read_entry_pages(f"({start}", MAX_ENTRIES_BEFORE, is_back=True), find_match
        )

    async def _estimate_first_entry_id_created_at(self, created_at_ms: int) -> str:
        """Returns about the first entry id whose job was not made before that time.

        Jobs are made by the clocks of the processes that add them, and large bulks some seconds before they arrive, so
        the first look is at times around it, near ones and far ones. Each further look is at PROBES_PER_ROUND places
        between the two that are known to lie before and behind. The places of one look travel together.
        """
        places = [_entry_id_to_number(max(1, created_at_ms + offset_ms), 0) for offset_ms in FIRST_PROBE_OFFSETS_MS]
        newest, (low, high) = await asyncio.gather(
            self.read_entries_newest_first(1), self._narrow_by_probes(created_at_ms, 0, None, places)
        )
        if high is None:
            high = _entry_id_to_number(*read_entry_id(newest[0][0])) if newest else low
        for _ in range(MAX_PROBE_ROUNDS):
            if high - low <= MIN_GAP_TO_BISECT:
                break
            step = (high - low) // (PROBES_PER_ROUND + 1)
            places = [low + step * number for number in range(1, PROBES_PER_ROUND + 1)]
            low, narrowed = await self._narrow_by_probes(created_at_ms, low, high, places)
            high = narrowed or high
        earliest_ms = max(1, created_at_ms - MAX_CLOCK_LEAD_MS)  # nothing can lie before 0-1
        return _number_to_entry_id(max(low, _entry_id_to_number(earliest_ms, 0)))

    async def _narrow_by_probes(
        self, created_at_ms: int, low: int, high: int | None, places: list[int]
    ) -> tuple[int, int | None]:
        """Looks at rising places; returns the last one before the job, or behind it if none is, and the next one."""
        probed = await asyncio.gather(
            *(self.read_entries_from_id(_number_to_entry_id(place), ENTRIES_PER_PROBE) for place in places)
        )
        for place, entries in zip(places, probed, strict=True):
            if not entries or any(_read_created_at_ms_or_zero(entry) >= created_at_ms for entry in entries):
                return low, max(place, low)
            low = max(place, _entry_id_to_number(*read_entry_id(entries[-1][0]))) + 1
        return low, high

    async def _read_pages(self, key: str, start: str, max_entries: int, is_back: bool) -> AsyncIterator[list[Entry]]:
        end = "-" if is_back else "+"
        async for page in read_range_in_pages(self._call, key, start, end, max_entries, is_back=is_back):
            yield page

    async def _read_page(self, key: str, start: str, count: int, *, is_back: bool) -> list[Entry]:
        return await read_entry_range(self._call, key, start, "-" if is_back else "+", count, is_back=is_back)


async def find_entry_in_pages(pages: AsyncIterator[list[Entry]], find_match: Match) -> Entry | None:
    async for page in pages:
        if (entry := find_match(page)) is not None:
            return entry
    return None


async def count_entries_until_reached(
    pages: AsyncIterator[list[Entry]], is_reached: Callable[[tuple[int, int]], bool]
) -> tuple[int, bool]:
    """Counts the entries before the first whose id `is_reached` accepts; and whether there is one."""
    count = 0
    async for page in pages:
        if not is_reached(read_entry_id(page[-1][0])):
            count += len(page)
            continue
        return count + next(place for place, entry in enumerate(page) if is_reached(read_entry_id(entry[0]))), True
    return count, False


def _entry_id_to_number(ms: int, sequence: int) -> int:
    """Returns an entry id as a number, for bisecting.

    No server adds more than MAX_IDS_PER_MS entries in a millisecond.
    """
    return ms * MAX_IDS_PER_MS + min(sequence, MAX_IDS_PER_MS - 1)


def _number_to_entry_id(number: int) -> str:
    return f"{min(number // MAX_IDS_PER_MS, LAST_ID[0])}-{number % MAX_IDS_PER_MS}"


def _read_created_at_ms_or_zero(entry: Entry) -> int:
    """Returns when a job was added, by the clock of the process that added it; 0 if its entry cannot be decoded."""
    try:
        envelope = decode_envelope(read_envelope_and_name_or_empty(entry)[0])
    except DecodeError:
        return 0
    id_time_ms = read_ulid_time_ms(envelope.id)  # more exact than created_at_ms, which all jobs of a bulk share
    return envelope.created_at_ms if id_time_ms is None else id_time_ms
