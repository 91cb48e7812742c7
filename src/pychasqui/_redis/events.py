"""The conversation with Redis about a queue's event stream, which is only read here. Every call can be sent again."""

from __future__ import annotations

from .._wire.lenient import read_cut_text, read_first_pairs
from ..errors import ReplyError
from .calls import RedisCalls
from .command_replies import read_newest_id
from .keys import Keys
from .replies import Entry, make_methods_raise_reply_error, read_entries_of_one_stream, read_range


@make_methods_raise_reply_error
class EventsBroker:
    """The conversation about one queue's events, over a connection that a blocked read may hold up."""

    def __init__(self, calls: RedisCalls, keys: Keys) -> None:
        self._calls = calls
        self._keys = keys

    async def read_newest_event_id(self) -> str:
        """Returns the id of the newest event; "0-0" if there is none."""
        return read_newest_id(await self._calls.call("XREVRANGE", self._keys.events, "+", "-", "COUNT", 1))

    async def read_last_generated_id(self) -> str | None:
        """Returns the largest id that the stream has given out, also to removed events; None without a stream."""
        try:
            about = await self._calls.call("XINFO", "STREAM", self._keys.events)
        except ReplyError as error:
            if "no such key" in str(error):
                return None
            raise
        return read_cut_text(read_first_pairs(about).get(b"last-generated-id"))

    async def read_newest_events(self, count: int) -> list[Entry]:
        """Returns the newest events, oldest first."""
        newest = read_range(await self._calls.call("XREVRANGE", self._keys.events, "+", "-", "COUNT", count))
        return newest[::-1]

    async def read_or_wait_for_events(self, after: str, count: int, block_ms: int) -> list[Entry]:
        """Returns the events after that one; waits up to `block_ms` for the first."""
        words = ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", self._keys.events, after)
        return read_range(read_entries_of_one_stream(await self._calls.call(*words)))  # which checks the ids as well

    async def close(self) -> None:
        await self._calls.close()
