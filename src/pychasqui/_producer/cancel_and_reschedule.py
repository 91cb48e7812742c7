"""A part of Queue: cancels jobs wherever they are, and moves delayed jobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .._core import checks
from .._core.options import check_delay_ms

if TYPE_CHECKING:
    from ..cancellation import Cancellation
    from .encoder import Encoder
    from .session import QueueSession


class CancelAndReschedule:
    """The methods of Queue that cancel jobs, and those about delayed jobs."""

    _encoder: Encoder

    if TYPE_CHECKING:

        def _get_or_open_loop_session(self) -> QueueSession: ...

        def _make_canceller(self) -> Any: ...

    async def cancel(self, job_id: str) -> Cancellation:
        """Cancels a job, wherever it is, and returns what that has done.

        "removed"    it had not reached a worker, or waited for its time: it never starts
        "stopping"   a worker has it: it is not started, or its run is cancelled (a thread is asked, see
                     Job.is_cancelled), unless it ends before that
        "unknown"    there is no such job any more, or there never was
        """
        answer: Cancellation = await self._make_canceller().cancel(job_id)
        return answer

    async def cancel_delayed(self, job_id: str) -> bool:
        """Removes a delayed job, or one that waits for its next run. True: it will never start."""
        return (await self.cancel_delayed_bulk([job_id]))[0]

    async def cancel_delayed_bulk(self, job_ids: Iterable[str]) -> list[bool]:
        """Removes many delayed jobs; answers in the order of the ids."""
        return await self._cancel_or_move_delayed("cancel", checks.check_job_ids(job_ids))

    async def reschedule(self, job_id: str, delay: int | timedelta) -> bool:
        """Makes a delayed job due that long from now (ms or timedelta). False if it is no longer delayed."""
        delay_ms = check_delay_ms("delay", delay, self._encoder.max_delay_ms)
        return (await self._cancel_or_move_delayed("postpone", [job_id], delay_ms))[0]

    async def run_now(self, job_id: str) -> bool:
        """Makes a delayed job due at once. False if it is no longer delayed."""
        return (await self._cancel_or_move_delayed("run", [job_id]))[0]

    async def _cancel_or_move_delayed(self, action: str, job_ids: list[str], delay_ms: int = 0) -> list[bool]:
        ids = [checks.check_job_id_of_lookup(job_id) for job_id in job_ids]
        return await self._get_or_open_loop_session().cancel_or_move_delayed(action, ids, delay_ms)
