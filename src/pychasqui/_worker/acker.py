"""Collects outcomes and sends them to Redis in batches: those that come while one batch is in flight form the next.

A done job is acked, a failed one rescheduled, a dead one buried. A batch that Redis does not take is sent again until
it does: a second arrival changes nothing, and a job whose outcome never arrives runs again. Each kind of outcome waits
for itself: while Redis refuses one kind, the others are sent.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from .._core.delivery import Delivery
from .._core.limits import (
    ACK_BATCH,
    ACK_BATCH_WITH_EVENTS,
    ACKS_AT_ONCE,
    ID_COST,
    OUTCOME_BATCH,
    OUTCOME_BYTES,
    REGROUP_S,
    RESULT_BATCH,
    RESULT_BATCH_BYTES,
    UNIQUE_COST_BYTES,
)
from .._core.printable import printable
from .._core.user_objects import class_name, text_of
from .._redis.broker import Broker
from .._redis.error_actions import ErrorAction, action_for
from .._redis.event_batch import EventsOnSend
from .._redis.failed_jobs import Buried, Rescheduled
from .._redis.replies import LOST, MOVED, REFUSED, Settled
from .._wire.msgpack import encode_data
from ..errors import RedisTrouble
from ..metrics import GuardedSinks
from .event_writer import EventWriter
from .outcome_metrics import records_of
from .service import Service
from .shared import Shared
from .unsettled import Unsettled

log = logging.getLogger("chasqui.worker")

MOVES_AT_ONCE = 4
T = TypeVar("T", Rescheduled, Buried)


class SettlingKind(NamedTuple):
    """One kind of outcome, and how it is sent."""

    unsettled: Unsettled[Any]
    settle: Callable[[], Awaitable[None]]


class AskedAck(NamedTuple):
    """Jobs whose ack is on its way."""

    jobs: list[Delivery]
    reply: asyncio.Task[None]


class Acker(Service):
    """start() -> sends outcomes as they come -> end() sends what is left."""

    title = "acker"

    def __init__(
        self,
        broker: Broker,
        shared: Shared,
        *,
        dlq_max_len: int,
        on_rescheduled: Callable[[int], None],
        event_writer: EventWriter | None = None,
        metrics: GuardedSinks | None = None,
        result_ttl_ms: int = 0,
        events_max_len: int = 0,
    ) -> None:
        super().__init__(shared.on_death)
        self._broker = broker
        self._group = shared.group
        self._consumer = shared.consumer
        self._settled, self._group_gone = shared.settled, shared.group_gone
        self._may_have_orphans = shared.may_have_orphans
        self._dlq_max_len = dlq_max_len
        self._on_rescheduled = on_rescheduled
        self._event_writer = event_writer
        self._metrics = metrics
        self._result_ttl_ms = result_ttl_ms  # 0: results are not stored
        # hot: chosen once; a plain ack knows nothing of results
        self.done = self._done_with_result if result_ttl_ms else self._done_plainly
        self._events_max_len = events_max_len
        self._ack_batch = ACK_BATCH if event_writer is None else ACK_BATCH_WITH_EVENTS
        unsettled = shared.holdings.unsettled
        self._done, self._done_by_script = (
            unsettled.done.waiting,
            unsettled.done_by_script.waiting,
        )  # hot: appended to by each job
        self._failed, self._dead = unsettled.failed, unsettled.dead
        self._kinds = (
            SettlingKind(unsettled.done, self._ack),
            SettlingKind(unsettled.done_by_script, self._ack_by_script),
            SettlingKind(self._failed, lambda: self._move(self._failed, self._reschedule)),
            SettlingKind(self._dead, lambda: self._move(self._dead, self._bury)),
        )

    def _done_plainly(self, job: Delivery, result: Any) -> None:
        (self._done_by_script if job.may_be_unique else self._done).append(job)
        if self._sleeper is not None:
            self.wake()

    def _done_with_result(self, job: Delivery, result: Any) -> None:
        job.result, job.why_not_stored = encode_result(job, result)
        self._done_by_script.append(job)
        if self._sleeper is not None:
            self.wake()

    def reschedule(self, job: Rescheduled) -> None:
        self._failed.add(job, job.size)
        if self._sleeper is not None:
            self.wake()

    def bury(self, job: Buried) -> None:
        self._dead.add(job, job.size)
        if self._sleeper is not None:
            self.wake()

    async def _run(self) -> None:
        while True:
            is_idle = True
            for kind in self._kinds:
                if kind.unsettled.is_ready:
                    is_idle = False
                    await self._settle(kind)
            if is_idle:
                if self._is_stopping and self._can_stop():
                    return
                await self._wait(min(kind.unsettled.wait_s for kind in self._kinds))

    async def _wait(self, seconds: float) -> None:
        """Waits until something can be sent."""
        if self._is_stopping:
            await asyncio.sleep(seconds)
        else:
            await self._sleep(None if seconds == float("inf") else seconds)

    def _can_stop(self) -> bool:
        """Whether only outcomes are left that Redis refuses for good: their entries stay pending."""
        return all(not kind.unsettled.waiting or kind.unsettled.is_refused for kind in self._kinds)

    async def _settle(self, kind: SettlingKind) -> None:
        """Sends one batch of this kind or a few. Outcomes leave their list only when Redis has answered."""
        kind.unsettled.take_up_refused()
        try:
            await kind.settle()
        except RedisTrouble as error:
            self._send_again_later(kind.unsettled, error)
        self._settled.send()

    async def _ack(self) -> None:
        """Sends small batches, the next one before the last is answered, until none is left or another kind waits."""
        asked: deque[AskedAck] = deque([self._send_ack(0)])
        sent = len(asked[0].jobs)  # how many of the first in the list are on their way
        try:
            await asyncio.sleep(0)
            while True:
                if len(asked) < ACKS_AT_ONCE and len(self._done) > sent and not self._has_other_kinds():
                    asked.append(self._send_ack(sent))
                    sent += len(asked[-1].jobs)
                    await asyncio.sleep(0)  # so that no two leave in one write: the server would run both in one go
                elif asked:
                    await asked[0].reply
                    jobs, _ = asked.popleft()
                    sent -= len(jobs)
                    self._note_acked(jobs)
                    if asked:  # the caller reports the last one
                        self._settled.send()
                else:
                    return
        except RedisTrouble:  # all of them are sent again
            await asyncio.gather(*(ack.reply for ack in asked), return_exceptions=True)
            raise
        except asyncio.CancelledError:
            for ack in asked:
                ack.reply.cancel()
            raise

    def _send_ack(self, start: int) -> AskedAck:
        jobs = self._done[start : start + self._ack_batch]
        ack = self._broker.ack(self._group, [job.entry_id for job in jobs], self._events_of(jobs))
        return AskedAck(jobs, asyncio.create_task(ack))

    def _note_acked(self, jobs: list[Delivery]) -> None:
        del self._done[: len(jobs)]
        self._kinds[0].unsettled.note_answered([], "")
        if self._metrics is not None:
            self._metrics.jobs_done(jobs)

    def _has_other_kinds(self) -> bool:
        return any(kind.unsettled.is_ready for kind in self._kinds[1:])

    async def _move(self, moves: Unsettled[T], send: Callable[[list[T]], Awaitable[Settled]]) -> None:
        """Sends a few script calls at a time: none keeps the server busy for long, and the next one is there."""
        batches = cut_batches(moves.waiting)
        if self._event_writer is not None:
            self._event_writer.write_active()  # the event active comes before the others of its job
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
                again = self._record_answers(batch, answer)
                refused += again
                refusal = answer.refusal or refusal
                freed_bytes += sum(job.size for job in batch) - sum(job.size for job in again)
        sent = sum(map(len, batches))
        moves.settle_first(sent, unanswered=unanswered, refused=refused, freed_bytes=freed_bytes)
        if troubles:
            raise troubles[0]
        moves.note_answered(refused, refusal)

    async def _reschedule(self, failed: list[Rescheduled]) -> Settled:
        settled = await self._broker.reschedule(self._group, self._consumer, failed, self._events_max_len)
        moved = [job.delay_ms for job, answer in zip(failed, settled.answers, strict=True) if answer == MOVED]
        if moved:
            self._on_rescheduled(min(moved))
        return settled

    async def _bury(self, dead: list[Buried]) -> Settled:
        return await self._broker.bury(self._group, self._consumer, self._dlq_max_len, dead, self._events_max_len)

    def _script_batch_size(self) -> int:
        """How many jobs one call acks: as many as cost about RESULT_BATCH_BYTES."""
        most = RESULT_BATCH if self._result_ttl_ms else OUTCOME_BATCH
        costs = accumulate(
            len(job.result or b"") + (UNIQUE_COST_BYTES + ID_COST * len(job.id) if job.may_be_unique else 0)
            for job in self._done_by_script[:most]
        )
        return max(1, bisect_right(list(costs), RESULT_BATCH_BYTES))

    async def _ack_by_script(self) -> None:
        jobs = self._done_by_script[: self._script_batch_size()]
        events = self._events_of(jobs)
        if self._result_ttl_ms:
            ids = [job.entry_id for job in jobs]
            results = [(job.id, job.result) for job in jobs if job.result is not None]
            marked = [(job.entry_id, job.id) for job in jobs if job.may_be_unique]
            if refused := await self._broker.ack_with_results(
                self._group, self._result_ttl_ms, ids, results, marked, events
            ):
                log.warning("Redis has refused %d results; their jobs are done", refused)
        else:
            await self._broker.ack_unique(self._group, [(job.entry_id, job.id) for job in jobs], events)
        del self._done_by_script[: len(jobs)]
        self._kinds[1].unsettled.note_answered([], "")
        if self._metrics is not None:
            self._metrics.jobs_done(jobs)

    def _events_of(self, jobs: list[Delivery]) -> EventsOnSend | None:
        """The events that the broker writes right behind the ack of these jobs."""
        return None if self._event_writer is None else partial(self._event_writer.completed_events, jobs)

    def _record_answers(self, jobs: list[T], settled: Settled) -> list[T]:
        """Records the metrics of each job by its own answer; returns the jobs that were refused."""
        if settled.refused_events and self._event_writer is not None:
            self._event_writer.count_dropped(settled.refused_events, "Redis has refused them")
        each = list(zip(jobs, settled.answers, strict=True))
        if LOST in settled.answers:
            self._may_have_orphans.set()  # an entry is not ours any more, at least not by that delivery
            lost = settled.answers.count(LOST)
            log.debug("worker %s settles %d jobs in vain: another delivery has them by now", self._consumer, lost)
        if self._metrics is not None:
            # The run counts also if the job was no longer this worker's to move.
            for job, answer in each:
                if answer != REFUSED:
                    self._metrics.record_all(records_of(job, is_moved=answer == MOVED))
        return [job for job, answer in each if answer == REFUSED] if REFUSED in settled.answers else []

    def _send_again_later(self, unsettled: Unsettled[Any], error: RedisTrouble) -> None:
        """Has this kind sent again after a pause, and reports a missing group."""
        action = action_for(error)
        if action is ErrorAction.NO_GROUP:  # a worker that drains does not read, so no other part notices
            self._group_gone.send()
            unsettled.note_failed(error, REGROUP_S)
            return
        unsettled.note_failed(error)


def cut_batches(jobs: Sequence[T]) -> list[list[T]]:
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


def encode_result(job: Delivery, result: Any) -> tuple[bytes | None, str]:
    """Returns the encoded result, or None and why: a result that cannot be stored does not fail its job."""
    try:
        return encode_data(result), ""
    except BaseException as error:  # noqa: BLE001  encoding touches the user's object, which may raise anything
        kind, why = class_name(result), printable(f"{class_name(error)}: {text_of(error)}")
        log.warning(
            "the result of job %.100r (%.100r), a %.100s, cannot be stored, the job is done: %s",
            job.id,
            job.name,
            kind,
            why,
        )
        return None, why
