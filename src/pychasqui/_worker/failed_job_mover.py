"""Moves failed jobs: those that run again to the delayed set, dead ones to the dead letters.

The acker calls it with what waits. Each job has its own answer: it was moved, it was lost to another worker, it was
cancelled meanwhile and is dead instead of running again, or Redis refuses it and it is sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from .._core.guarded_log import GuardedLogger
from .._core.limits import ID_COST, OUTCOME_BATCH, OUTCOME_BYTES
from .._core.outcome import Buried, Rescheduled
from .._redis.broker import Broker
from .._redis.replies import CANCELLED as CANCELLED_MEANWHILE
from .._redis.replies import LOST, MOVED, REFUSED, SettledJobs
from ..metrics import GuardedSinks
from .event_writer import EventWriter
from .outcome_metrics import make_outcome_records
from .shared import Shared
from .unsettled import Unsettled

log = GuardedLogger("chasqui.worker")

MOVES_AT_ONCE = 4
T = TypeVar("T", Rescheduled, Buried)


class FailedJobMover:
    """reschedule_first_batches() and bury_first_batches() send a few batches each.

    A job leaves its list once Redis has answered for it.
    """

    def __init__(
        self,
        broker: Broker,
        shared: Shared,
        *,
        dlq_max_len: int,
        on_rescheduled: Callable[[int], None],
        event_writer: EventWriter | None = None,
        metrics: GuardedSinks | None = None,
        events_max_len: int = 0,
    ) -> None:
        self._broker = broker
        self._group, self._consumer = shared.group, shared.consumer
        self._failed, self._dead = shared.holdings.unsettled.failed, shared.holdings.unsettled.dead
        self._may_have_orphans = shared.may_have_orphans
        self._dlq_max_len = dlq_max_len
        self._on_rescheduled = on_rescheduled
        self._event_writer = event_writer
        self._metrics = metrics
        self._events_max_len = events_max_len

    async def reschedule_first_batches(self) -> None:
        await self._move_first_batches(self._failed, self._reschedule_batch_and_report_min_delay)

    async def bury_first_batches(self) -> None:
        await self._move_first_batches(self._dead, self._bury_batch)

    async def _move_first_batches(self, moves: Unsettled[T], send: Callable[[list[T]], Awaitable[SettledJobs]]) -> None:
        """Sends a few script calls at a time: none keeps the server busy for long, and the next one is there."""
        batches = list_first_batches(moves.waiting)
        if self._event_writer is not None:
            self._event_writer.write_or_drop_active_events()  # the event active comes before the others of its job
        answers = await asyncio.gather(*map(send, batches), return_exceptions=True)
        unanswered: list[T] = []
        refused: list[T] = []
        troubles: list[BaseException] = []
        refusal, freed_bytes = "", 0
        for batch, answer in zip(batches, answers, strict=True):
            if isinstance(answer, BaseException):
                unanswered += batch
                troubles.append(answer)
            else:
                again = self._apply_answers_and_return_refused(batch, answer)
                refused += again
                refusal = answer.refusal or refusal
                freed_bytes += sum(job.size for job in batch) - sum(job.size for job in again)
        sent = sum(map(len, batches))
        moves.remove_first_settled(sent, unanswered=unanswered, refused=refused, freed_bytes=freed_bytes)
        if troubles:
            raise troubles[0]
        moves.record_answer_and_end_pause(refused, refusal)

    async def _reschedule_batch_and_report_min_delay(self, failed: list[Rescheduled]) -> SettledJobs:
        settled = await self._broker.reschedule(self._group, self._consumer, failed, self._events_max_len)
        moved = [job.delay_ms for job, answer in zip(failed, settled.answers, strict=True) if answer == MOVED]
        if moved:
            self._on_rescheduled(min(moved))
        return settled

    async def _bury_batch(self, dead: list[Buried]) -> SettledJobs:
        return await self._broker.bury(self._group, self._consumer, self._dlq_max_len, dead, self._events_max_len)

    def _apply_answers_and_return_refused(self, jobs: list[T], settled: SettledJobs) -> list[T]:
        """Records the metrics of each job by its own answer; returns the jobs that were refused.

        A job that was cancelled meanwhile joins the dead ones.
        """
        if settled.refused_events and self._event_writer is not None:
            self._event_writer.count_dropped_and_log_first(settled.refused_events, "Redis has refused them")
        each = list(zip(jobs, settled.answers, strict=True))
        if LOST in settled.answers:
            self._may_have_orphans.set()  # an entry is not ours any more, at least not by that delivery
            lost = settled.answers.count(LOST)
            log.debug("worker %s cannot settle %d jobs: another delivery has them by now", self._consumer, lost)
        if self._metrics is not None:
            # The run counts also if the job was no longer this worker's to move.
            for job, answer in each:
                if answer not in (REFUSED, CANCELLED_MEANWHILE):
                    self._metrics.record_all(make_outcome_records(job, is_moved=answer == MOVED))
        for job, answer in each:
            if answer == CANCELLED_MEANWHILE and isinstance(job, Rescheduled):
                dead = job.as_cancelled()
                self._dead.add(dead, dead.size)
        return [job for job, answer in each if answer == REFUSED] if REFUSED in settled.answers else []


def list_first_batches(jobs: Sequence[T]) -> list[list[T]]:
    """Returns the first few batches, each bounded by number and by bytes; a single job may be larger."""
    batches: list[list[T]] = []
    bytes_left = 0
    for job in jobs[: MOVES_AT_ONCE * OUTCOME_BATCH]:
        size = job.size + ID_COST * len(job.job_id or "")
        if not batches or size > bytes_left or len(batches[-1]) == OUTCOME_BATCH:
            if len(batches) == MOVES_AT_ONCE:
                break
            batches.append([])
            bytes_left = OUTCOME_BYTES
        batches[-1].append(job)
        bytes_left -= size
    return batches
