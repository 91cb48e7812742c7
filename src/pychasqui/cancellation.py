"""Cancels jobs by their ids, wherever they are.

A script decides: it removes a job that has not reached a worker, and else leaves a note by which its worker stops it. A
job with an id of the user's is found by its uniqueness key, unless its window is over. Another one is looked for among
the first entries of the stream and, in a long one, where it should be by the time in its id; if its id has no time,
among more of the first entries. If it is not there, as after a retry, the note is about its id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from ._core.checks import check_job_id_of_lookup
from ._core.defaults import EVENTS_MAX_LEN
from ._core.ids import read_ulid_time_ms
from ._producer.session import QueueSession
from ._redis.cancellations import CancelAnswer
from .inspector import find_entry
from .metrics import JobsCancelled

__all__ = ["Cancellation", "JobCanceller"]

Cancellation = Literal["removed", "stopping", "unknown"]
MAX_SEARCHED = 500  # entries at the beginning of the stream: what workers have is there
MAX_SEARCHED_WITHOUT_TIME = 20_000  # if the id does not say where the job should be,
MAX_SEARCHED_BYTES = 16 * 1024 * 1024  # and no further than this
SEARCHES = 3


class JobCanceller:
    """Implements Queue.cancel()."""

    def __init__(
        self, get_session: Callable[[], QueueSession], record_metric: Callable[[JobsCancelled], None] | None
    ) -> None:
        self._get_session = get_session
        self._record_metric = record_metric

    async def cancel(self, job_id: str) -> Cancellation:
        answer = await self._search_and_cancel(check_job_id_of_lookup(job_id))
        if answer.word == "removed" and self._record_metric is not None:
            self._record_metric(JobsCancelled(1, "removed", answer.job_name))
        return cast(Cancellation, answer.word)

    async def _search_and_cancel(self, job_id: str) -> CancelAnswer:
        answer = await self._ask_redis_to_cancel(job_id)
        id_time_ms = read_ulid_time_ms(job_id)
        for _ in range(SEARCHES):
            if answer.word != "unknown":
                break
            entry_id, is_all_seen = await self._find_entry_id_and_whether_all_seen(job_id, id_time_ms)
            answer = await self._ask_redis_to_cancel(job_id, entry_id, may_be_in_unread_entry=not is_all_seen)
            if not entry_id and is_all_seen:  # else it has moved since it was found
                break
        return answer

    async def _find_entry_id_and_whether_all_seen(self, job_id: str, id_time_ms: int | None) -> tuple[str, bool]:
        """Returns the id of the job's entry, "" if it was not found, and whether it would have been."""
        finder = self._get_session().job_finder
        entry, seen, seen_bytes, is_cut = None, 0, 0, False
        max_searched = MAX_SEARCHED_WITHOUT_TIME if id_time_ms is None else MAX_SEARCHED
        async for page in finder.read_entry_pages("-", max_searched):
            seen += len(page)
            seen_bytes += sum(len(word) for _, fields in page for word in fields)
            is_cut = seen >= MAX_SEARCHED and seen_bytes >= MAX_SEARCHED_BYTES
            if (entry := find_entry(page, job_id)) is not None or is_cut:
                break
        is_all_seen = entry is not None or (seen < max_searched and not is_cut)
        if entry is None and id_time_ms is not None and not is_all_seen:
            entry = await finder.find_entry_created_around(lambda page: find_entry(page, job_id), id_time_ms)
        return "" if entry is None else entry[0].decode(), is_all_seen

    async def _ask_redis_to_cancel(
        self, job_id: str, entry_id: str = "", *, may_be_in_unread_entry: bool = False
    ) -> CancelAnswer:
        return await self._get_session().broker.cancel(
            job_id, entry_id, may_be_in_unread_entry=may_be_in_unread_entry, events_max_len=EVENTS_MAX_LEN
        )
