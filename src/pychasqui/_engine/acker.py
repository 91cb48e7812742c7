"""Gathers outcomes and settles them in batches: all that end while one batch is on its way share the next.

Done is acked, failed is rescheduled, dead is buried. What Redis does not take is sent again until it does: the scripts
make a second arrival harmless, and what is never settled would run a second time.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from typing import Any, Protocol, TypeVar

from .._foreign import class_name, text_of
from .._redis.broker import Broker
from .._redis.commands import Dead, Failed
from .._redis.remedies import Remedy, remedy_for
from .._redis.socket import Socket
from .._shown import shown
from ..codec import encode_data
from ..config import ACK_BATCH, OUTCOME_BATCH, OUTCOME_BYTES, REGROUP_S, RESULT_BATCH_BYTES
from ..errors import RedisTrouble
from ..sinks import GuardedSinks, JobOutcome
from .delivery import Delivery
from .event import Event
from .service import Outage, Service

log = logging.getLogger("chasqui.worker")

MOVES_AT_ONCE = 4
T = TypeVar("T", Failed, Dead)


class Announces(Protocol):
    def done(self, socket: Socket, jobs: list[Delivery]) -> None: ...
    def tell(self, events: list[Event]) -> None: ...


class Acker(Service):
    """start() -> settles outcomes as they come -> end() settles what is left."""

    title = "acker"

    def __init__(
        self,
        broker: Broker,
        group: str,
        consumer: str,
        *,
        dlq_max_len: int,
        on_rescheduled: Callable[[int], None],
        on_fenced: Callable[[], None],
        on_group_gone: Callable[[], None],
        announcer: Announces | None = None,
        metrics: GuardedSinks | None = None,
        result_ttl_ms: int = 0,
    ) -> None:
        super().__init__()
        self._broker = broker
        self._group = group
        self._consumer = consumer
        self._dlq_max_len = dlq_max_len
        self._on_rescheduled = on_rescheduled
        self._on_fenced = on_fenced  # an entry was not ours any more, at least not by that delivery
        self.on_settled: Callable[[], None] = _nobody
        self._on_group_gone = on_group_gone
        self._announcer = announcer
        self._metrics = metrics
        self._result_ttl_ms = result_ttl_ms  # 0: results are not stored
        # hot: chosen once; a plain ack knows nothing of results
        self.done = self._done_with_result if result_ttl_ms else self._done_plainly
        self._done: list[Delivery] = []
        self._finishing: list[Delivery] = []  # done as well, but more than an ack is to be done about them
        self._failed: list[Failed] = []
        self._dead: list[Dead] = []
        self._outage = Outage(
            f"worker {consumer} cannot settle jobs and keeps trying", f"worker {consumer} settles jobs again"
        )

    def _done_plainly(self, job: Delivery, result: Any) -> None:
        (self._finishing if job.is_marked else self._done).append(job)
        if self._sleeper is not None:
            self.wake()

    def _done_with_result(self, job: Delivery, result: Any) -> None:
        job.result, job.why_not_stored = encode_result(job, result)
        self._finishing.append(job)
        if self._sleeper is not None:
            self.wake()

    def reschedule(self, job: Failed) -> None:
        self._failed.append(job)
        self.wake()

    def bury(self, job: Dead) -> None:
        self._dead.append(job)
        self.wake()

    @property
    def unsettled(self) -> int:
        """How many jobs have ended here of which Redis does not know yet."""
        return len(self._done) + len(self._finishing) + len(self._failed) + len(self._dead)

    def held(self) -> dict[bytes, int]:
        """Entries that have ended here and are not settled in Redis yet, each with its delivery.

        Also called from the keeper's thread: a list is copied in one step.
        """
        held = {job.entry_id: job.number for job in (*self._done.copy(), *self._finishing.copy())}
        held.update((job.entry_id, job.delivery) for job in self._failed.copy())
        held.update((job.entry_id, job.delivery) for job in self._dead.copy())
        return held

    async def _run(self) -> None:
        while True:
            while not (self._done or self._finishing or self._failed or self._dead):
                if self._is_stopping:
                    return
                await self._sleep()
            try:
                await self._settle()
            except RedisTrouble as error:
                await self._mend(error)
            else:
                self._outage.is_over()
                self.on_settled()

    async def _settle(self) -> None:
        """One batch of each kind. A batch leaves its list only when Redis has answered."""
        if self._done:
            done = self._done[:ACK_BATCH]
            await self._broker.ack(self._group, [job.entry_id for job in done], self._announcement(done))
            del self._done[: len(done)]
            if self._metrics is not None:
                self._metrics.jobs_done(done)
        if self._finishing:
            await self._finish(self._finishing[: self._finish_batch()])
        if self._failed:
            await self._move(self._failed, self._reschedule)
        if self._dead:
            await self._move(self._dead, self._bury)

    async def _move(self, jobs: list[T], send: Callable[[list[T]], Awaitable[int]]) -> None:
        """A few calls at a time: the server is not held up for long by one, and has the next at hand."""
        batches = cut_batches(jobs)
        answers = await asyncio.gather(*map(send, batches), return_exceptions=True)
        unanswered: list[T] = []
        for batch, answer in zip(batches, answers, strict=True):
            if isinstance(answer, BaseException):
                unanswered += batch
            else:
                self._see(batch, answer)
        jobs[: sum(map(len, batches))] = unanswered  # in one step: the keeper's thread looks at it
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _reschedule(self, failed: list[Failed]) -> int:
        moved = await self._broker.reschedule(self._group, self._consumer, failed)
        self._on_rescheduled(min(job.delay_ms for job in failed))
        return moved

    async def _bury(self, dead: list[Dead]) -> int:
        return await self._broker.bury(self._group, self._consumer, self._dlq_max_len, dead)

    def _finish_batch(self) -> int:
        """How many to finish with one call: of results as many as will not hold up the server for long."""
        if not self._result_ttl_ms:
            return OUTCOME_BATCH
        sizes = accumulate(len(job.result or b"") for job in self._finishing[:ACK_BATCH])
        return max(1, bisect_right(list(sizes), RESULT_BATCH_BYTES))

    async def _finish(self, jobs: list[Delivery]) -> None:
        also = self._announcement(jobs)
        if self._result_ttl_ms:
            ids = [job.entry_id for job in jobs]
            results = [(job.id, job.result) for job in jobs if job.result is not None]
            marked = [(job.entry_id, job.id) for job in jobs if job.is_marked]
            if refused := await self._broker.store(self._group, self._result_ttl_ms, ids, results, marked, also):
                log.warning("Redis has refused %d results; their jobs are done", refused)
        else:
            await self._broker.finish(self._group, [(job.entry_id, job.id) for job in jobs], also)
        del self._finishing[: len(jobs)]
        if self._metrics is not None:
            self._metrics.jobs_done(jobs)

    def _announcement(self, jobs: list[Delivery]) -> Callable[[Socket], None] | None:
        """What is to be sent right behind the ack of these jobs."""
        if self._announcer is None:
            return None
        announcer = self._announcer
        return lambda socket: announcer.done(socket, jobs)

    def _see(self, jobs: Sequence[Failed | Dead], settled: int) -> None:
        """Tell of what was done; if some of it was not, nobody knows which, and nothing is told of this batch."""
        if self._metrics is not None:
            self._count(self._metrics, jobs, settled)
        if settled < len(jobs):
            self._on_fenced()
        elif self._announcer is not None:
            self._announcer.tell([event for job in jobs for event in job.events])

    def _count(self, metrics: GuardedSinks, jobs: Sequence[Failed | Dead], settled: int) -> None:
        """A handler has run, whatever came of it. Of a batch that was ours in part the rest is counted as well: to
        miss a hundred dead jobs would be worse than to count one twice."""
        records = (record for job in jobs for record in job.records)
        metrics.tell_all([record for record in records if settled or isinstance(record, JobOutcome)])

    async def _mend(self, error: RedisTrouble) -> None:
        """Wait, or put right what can be put right; the loop then settles again."""
        remedy = remedy_for(error)
        if remedy is Remedy.NO_GROUP:  # of a worker that drains nobody else may notice
            self._on_group_gone()
            await asyncio.sleep(REGROUP_S)
            return
        await asyncio.sleep(self._outage.goes_on(error))


def cut_batches(jobs: Sequence[T]) -> list[list[T]]:
    """The first few batches of what is to be moved, each bounded by number and by bytes; one job may be more."""
    batches: list[list[T]] = []
    bytes_left = 0
    for job in jobs[: MOVES_AT_ONCE * OUTCOME_BATCH]:
        size = len(job.member) if isinstance(job, Failed) else sum(map(len, job.letter))
        if not batches or size > bytes_left or len(batches[-1]) == OUTCOME_BATCH:
            if len(batches) == MOVES_AT_ONCE:
                break
            batches.append([])
            bytes_left = OUTCOME_BYTES
        batches[-1].append(job)
        bytes_left -= size
    return batches


def _nobody() -> None:
    """Nobody has asked to be told."""


def encode_result(job: Delivery, result: Any) -> tuple[bytes | None, str]:
    """Or None, and why: a result that cannot be stored does not fail its job."""
    try:
        return encode_data(result), ""
    except BaseException as error:  # noqa: BLE001  to look at the user's object may raise anything
        kind, why = class_name(result), shown(f"{class_name(error)}: {text_of(error)}")
        log.warning(
            "the result of job %.100r (%.100r), a %.100s, cannot be stored, the job is done: %s",
            job.id,
            job.name,
            kind,
            why,
        )
        return None, why
