"""The conversation with Redis about what workers store of jobs: results, progress, logs.

It is read and removed here; broker.py has what writes it. Every call can be sent again.
"""

from __future__ import annotations

from typing import NamedTuple

from .._wire.job_log import read_log_line_or_none
from .._wire.lenient import read_int
from .calls import RedisCalls
from .command_replies import read_stored_bytes_list
from .keys import Keys
from .replies import make_methods_raise_reply_error, read_count, read_range


class LogLine(NamedTuple):
    """A line that a job has logged, and its id, which begins with the time in ms since 1970."""

    id: str
    text: str


@make_methods_raise_reply_error
class ResultsBroker:
    """The conversation about one queue's results, over a broker's connection."""

    def __init__(self, calls: RedisCalls, keys: Keys) -> None:
        self._call = calls.call
        self._keys = keys

    async def read_results(self, job_ids: list[str]) -> list[bytes | None]:
        """Returns what the handlers of these jobs returned, still encoded; None where nothing is stored."""
        return read_stored_bytes_list(await self._call("MGET", *map(self._keys.result, job_ids)), len(job_ids))

    async def read_progress(self, job_id: str) -> int | None:
        """Returns how far a job is; None if nothing is stored, or what is stored is no percentage."""
        return read_int(await self._call("GET", self._keys.progress(job_id)), 0, 100)

    async def remove_result_progress_and_log(self, job_id: str) -> bool:
        """Removes result, progress and log of a job; returns whether there was any."""
        keys = (self._keys.result(job_id), self._keys.progress(job_id), self._keys.log(job_id))
        return bool(read_count(await self._call("DEL", *keys)))

    async def read_log_lines_after(self, job_id: str, after: str, count: int) -> list[LogLine]:
        """Returns the first lines of a job's log behind the line `after`; "" for all."""
        start = f"({after}" if after else "-"
        entries = read_range(await self._call("XRANGE", self._keys.log(job_id), start, "+", "COUNT", count))
        return [
            LogLine(entry[0].decode(), line) for entry in entries if (line := read_log_line_or_none(entry)) is not None
        ]

    async def read_last_log_lines(self, job_id: str, count: int) -> list[str]:
        """Returns the last lines of a job's log, oldest first."""
        entries = read_range(await self._call("XREVRANGE", self._keys.log(job_id), "+", "-", "COUNT", count))
        lines = map(read_log_line_or_none, reversed(entries))
        return [line for line in lines if line is not None]
