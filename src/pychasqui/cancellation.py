"""Cancels jobs by their ids, wherever they are.

A script decides: it removes a job that has not reached a worker, and else leaves a note by which its worker stops it. A
job with an id of the user's is found by its uniqueness key. One whose id the queue has made is looked for where it
should be, by the time in its id; if it is not there, as after a retry, the note is about its id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from ._core.checks import check_job_id
from ._core.defaults import EVENTS_MAX_LEN
from ._core.ids import time_in_id
from ._producer.session import QueueSession
from ._redis.cancellations import CancelAnswer
from .inspector import find_entry
from .job_status import JobStatusFinder
from .metrics import JobsCancelled

__all__ = ["Cancellation", "JobCanceller"]

Cancellation = Literal["removed", "stopping", "unknown"]
FOUND = ("waiting", "running")
MOVED = ("delayed", "retrying")


class JobCanceller:
    """Implements Queue.cancel()."""

    def __init__(self, session: Callable[[], QueueSession], record: Callable[[JobsCancelled], None] | None) -> None:
        self._session = session
        self._record = record

    async def cancel(self, job_id: str) -> Cancellation:
        answer = await self._cancel(check_job_id(job_id))
        if answer.word == "removed" and self._record is not None:
            self._record(JobsCancelled(1, "removed", answer.job_name))
        return cast(Cancellation, answer.word)

    async def _cancel(self, job_id: str) -> CancelAnswer:
        answer = await self._ask(job_id)
        born_ms = time_in_id(job_id)
        if answer.word == "unknown" and born_ms is not None:
            finder = self._session().job_finder
            entry = await finder.find_near(lambda page: find_entry(page, job_id), born_ms)
            answer = answer if entry is None else await self._ask(job_id, entry[0].decode())
        if answer.word != "unknown":
            return answer
        status = await JobStatusFinder(self._session).find(job_id)
        if status.state in FOUND:
            answer = await self._ask(job_id, status.entry_id or "")
        is_somewhere = status.state in (*FOUND, *MOVED) or (status.state == "unknown" and born_ms is not None)
        if answer.word == "unknown" and is_somewhere:  # it may have moved since
            return await self._ask(job_id, is_lost=True)
        return answer

    async def _ask(self, job_id: str, entry_id: str = "", *, is_lost: bool = False) -> CancelAnswer:
        return await self._session().broker.cancel(job_id, entry_id, is_lost=is_lost, events_max_len=EVENTS_MAX_LEN)
