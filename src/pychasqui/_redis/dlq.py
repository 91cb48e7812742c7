"""The conversation with Redis about dead letters that are buried. Every call but add_letters() can be sent again."""

from __future__ import annotations

import asyncio

from .._wire.lenient import read_int
from ..errors import ReplyError
from . import scripts
from .calls import RedisCalls
from .command_replies import read_newest_id
from .keys import Keys
from .replies import Entry, make_methods_raise_reply_error, read_count, read_moved_count, read_range


@make_methods_raise_reply_error
class DlqBroker:
    """The conversation about one queue's dead letters, over a broker's connection."""

    def __init__(self, calls: RedisCalls, keys: Keys) -> None:
        self._calls = calls
        self._call = calls.call
        self._keys = keys

    async def read_page(self, start: str, end: str, count: int) -> list[Entry]:
        """Returns letters, oldest first; start and end are as XRANGE takes them."""
        return read_range(await self._call("XRANGE", self._keys.dead, start, end, "COUNT", count))

    async def read_newest_id(self) -> str:
        """Returns the id of the newest letter; "0-0" if there is none."""
        return read_newest_id(await self._call("XREVRANGE", self._keys.dead, "+", "-", "COUNT", 1))

    async def count(self) -> int:
        return read_count(await self._call("XLEN", self._keys.dead))

    async def read_dropped_count(self) -> int:
        """Returns how many dead letters the bound has pushed out; 0 if what is stored there is no number."""
        return read_int(await self._call("GET", self._keys.dead_dropped)) or 0

    async def replay(self, jobs: list[tuple[str, bytes, bytes]]) -> int:
        """Moves dead jobs back to the stream, each a letter's id, an envelope and a name. Each letter moves once."""
        arguments = tuple(word for job in jobs for word in job)
        moved = read_moved_count(
            await self._calls.run_script(scripts.REPLAY, (self._keys.dead, self._keys.stream), arguments)
        )
        if moved.refusal:
            raise ReplyError(moved.refusal)
        return moved.number

    async def add_letters(self, letters: list[list[bytes]]) -> None:
        """Adds letters, each as its fields. They travel in one write. After an error some may have been added."""
        await asyncio.gather(*(self._call("XADD", self._keys.dead, "*", *fields) for fields in letters))

    async def remove(self, ids: list[str]) -> int:
        return read_count(await self._call("XDEL", self._keys.dead, *ids))
