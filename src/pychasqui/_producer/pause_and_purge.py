"""The methods of Queue that pause it, and that remove jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core import checks

if TYPE_CHECKING:
    from .._core.cached_property import cached_property
    from ..dlq import DeadLetters
    from ..inspector import Inspector, State
    from .session import QueueSession


class PauseAndPurge:
    """A part of Queue."""

    if TYPE_CHECKING:

        @property
        def dlq(self) -> DeadLetters: ...

        @cached_property
        def _inspector(self) -> Inspector: ...

        def _get_or_open_loop_session(self) -> QueueSession: ...

        async def cancel_delayed(self, job_id: str) -> bool: ...

    async def pause(self) -> None:
        """Makes all workers stop reading; they finish the jobs they hold. Adding goes on."""
        await self._get_or_open_loop_session().inspector.pause()

    async def resume(self) -> None:
        """Makes the workers read again."""
        await self._get_or_open_loop_session().inspector.resume()

    async def is_paused(self) -> bool:
        return await self._get_or_open_loop_session().inspector.is_paused()

    async def purge(self, state: State) -> int:
        """Removes the jobs of a state for good: "waiting", "delayed" or "dead". Returns how many."""
        return await (self.dlq.purge() if state == "dead" else self._inspector.purge(state))

    async def forget_job(self, job_id: str) -> bool:
        """Removes what is kept of a job, such as personal data: it is cancelled if it is delayed or waits for its next
        run, and its dead letters, result, progress and log lines go. Returns whether there was any.

        A job that waits in the stream or runs is not stopped. Events hold no data of jobs.
        """
        is_cancelled = await self.cancel_delayed(job_id)
        letters = await self.dlq.remove(job_id=job_id)
        return (
            await self._get_or_open_loop_session().results.remove_result_progress_and_log(job_id)
            or is_cancelled
            or letters > 0
        )

    async def drain(self, *, delayed: bool = False) -> int:
        """Removes the waiting jobs and, if `delayed`, the delayed ones. Returns how many."""
        checks.check_bool("delayed", delayed)
        removed = await self.purge("waiting")
        return removed + (await self.purge("delayed") if delayed else 0)

    async def obliterate(self) -> int:
        """Removes everything that the queue has in Redis, running jobs included. Returns how many keys there were.

        A consumer group with consumers in it stays, because official workers do not make it again.
        """
        return await self._get_or_open_loop_session().inspector.remove_all_keys_but_keep_groups()
