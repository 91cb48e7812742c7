"""What is asked of Redis about what workers tell of jobs: events, results, progress, logs. It can be asked again.

It is only read here; broker.py has what writes it.
"""

from __future__ import annotations

from .connection import Connection
from .keys import Keys
from .replies import Entry, read_entries


class ReportBroker:
    """The conversation about what was told of one queue's jobs."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self.connection = connection
        self._keys = keys

    async def last_event_id(self) -> str:
        """The newest event's; "0-0" if there is none."""
        newest = await self.connection.call("XREVRANGE", self._keys.events, "+", "-", "COUNT", 1)
        return newest[0][0].decode() if newest else "0-0"

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
        percent = await self.connection.call("GET", self._keys.progress(job_id))
        return int(percent) if percent is not None and percent.isdigit() else None

    async def log_of(self, job_id: str, count: int) -> list[str]:
        """The last lines of a job's log, oldest first."""
        entries = await self.connection.call("XREVRANGE", self._keys.log(job_id), "+", "-", "COUNT", count)
        return [entry[1][1].decode("utf-8", "replace") for entry in reversed(entries) if len(entry[1]) > 1]
