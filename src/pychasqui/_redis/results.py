"""What is asked of Redis about what workers tell of jobs: events, results, progress, logs. It can be asked again.

It is only read here; broker.py has what writes it.
"""

from __future__ import annotations

from .._wire.lenient import read_int, read_pairs, read_text
from ..errors import ReplyError
from .connection import Connection
from .keys import Keys
from .replies import Entry, read_entries, reads_replies


@reads_replies
class ResultsBroker:
    """The conversation about what was told of one queue's jobs."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self.connection = connection
        self._keys = keys

    async def last_event_id(self) -> str:
        """The newest event's; "0-0" if there is none."""
        newest = await self.connection.call("XREVRANGE", self._keys.events, "+", "-", "COUNT", 1)
        return newest[0][0].decode() if newest else "0-0"

    async def last_generated_id(self) -> str | None:
        """The largest id that the stream of events has given out, of removed events too; None if there is none."""
        try:
            about = await self.connection.call("XINFO", "STREAM", self._keys.events)
        except ReplyError as error:
            if "no such key" in str(error):
                return None
            raise
        return read_text(read_pairs(about).get(b"last-generated-id"))

    async def recent_events(self, count: int) -> list[Entry]:
        """The newest, oldest first."""
        newest: list[Entry] = await self.connection.call("XREVRANGE", self._keys.events, "+", "-", "COUNT", count)
        return newest[::-1]

    async def read_events(self, after: str, count: int, block_ms: int) -> list[Entry]:
        """What has happened after that event; waits if it is nothing."""
        return read_entries(
            await self.connection.call("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", self._keys.events, after)
        )

    async def results(self, job_ids: list[str]) -> list[bytes | None]:
        """What the handlers of these jobs returned, still encoded; None where nothing is stored."""
        found: list[bytes | None] = await self.connection.call("MGET", *map(self._keys.result, job_ids))
        return found

    async def progress_of(self, job_id: str) -> int | None:
        """None if nothing is stored, or what is stored is no percentage."""
        return read_int(await self.connection.call("GET", self._keys.progress(job_id)), 0, 100)

    async def log_of(self, job_id: str, count: int) -> list[str]:
        """The last lines of a job's log, oldest first."""
        entries = await self.connection.call("XREVRANGE", self._keys.log(job_id), "+", "-", "COUNT", count)
        lines = (read_text(next(iter(read_pairs(entry[1]).values()), None)) for entry in reversed(entries))
        return [line for line in lines if line is not None]
