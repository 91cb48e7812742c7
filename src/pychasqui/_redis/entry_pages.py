"""Pages of a stream, in calls that are bounded by number and by bytes: jobs of a queue may be large."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from .._wire.lenient import read_entry_id
from .replies import Entry, read_range

FIRST_PAGE = 25  # later pages are up to GROWTH times as long as the last one, depending on the size of its entries
GROWTH = 10  # a bulk of thousands is read in few trips, and a job that was added alone in one short one
PAGE = 1000
LAST_ID = (2**64 - 1, 2**64 - 1)  # the server refuses to look behind it
PAGE_BYTES = 512 * 1024  # about how much one call reads

Call = Callable[..., Awaitable[Any]]


async def read_entry_range(call: Call, key: str, start: str, end: str, count: int, *, is_back: bool) -> list[Entry]:
    return read_range(await call("XREVRANGE" if is_back else "XRANGE", key, start, end, "COUNT", count))


async def read_range_in_pages(
    call: Call, key: str, start: str, end: str, max_entries: int, *, is_back: bool = False
) -> AsyncIterator[list[Entry]]:
    """Yields pages of the entries from `start` to `end`, up to `max_entries` in all."""
    count = FIRST_PAGE
    while max_entries > 0:
        wanted = min(count, max_entries)
        page = await read_entry_range(call, key, start, end, wanted, is_back=is_back)
        if not page:
            return
        yield page
        if len(page) < wanted or read_entry_id(page[-1][0]) == LAST_ID:
            return
        max_entries -= len(page)
        some = page[-FIRST_PAGE:]
        count = choose_length_of_next_page(count, [sum(map(len, entry[1] or ())) for entry in some])
        start = f"({page[-1][0].decode()}"


def choose_length_of_next_page(count: int, sizes: list[int]) -> int:
    """Returns the length of the page behind one of `count`; `sizes` are those of its last entries, in bytes."""
    return max(1, min(GROWTH * count, PAGE, PAGE_BYTES * len(sizes) // max(1, sum(sizes))))
