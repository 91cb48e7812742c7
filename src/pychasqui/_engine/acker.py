"""Gathers outcomes and settles them in batches: all that end while one batch is on its way share the next.

Done is acked, failed is rescheduled, dead is buried. What Redis does not take is sent again until it does: the scripts
make a second arrival harmless, and what is never settled would run a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .._redis.broker import Broker, Dead, Failed
from .._redis.remedies import Remedy, remedy_for
from ..config import ACK_BATCH, OUTCOME_BATCH
from ..errors import RedisTrouble
from ..job import Job
from .service import Outage, Service


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
    ) -> None:
        super().__init__()
        self._broker = broker
        self._group = group
        self._consumer = consumer
        self._dlq_max_len = dlq_max_len
        self._on_rescheduled = on_rescheduled
        self._on_fenced = on_fenced  # an entry was not ours any more, at least not by that delivery
        self._done: list[Job] = []
        self._done_marked: list[Job] = []  # whose ends let the next of their ids in
        self._failed: list[Failed] = []
        self._dead: list[Dead] = []
        self._outage = Outage(
            f"worker {consumer} cannot settle jobs and keeps trying", f"worker {consumer} settles jobs again"
        )

    def done(self, job: Job, result: Any) -> None:
        (self._done_marked if job._is_marked else self._done).append(job)
        if self._sleeper is not None:
            self.wake()

    def reschedule(self, job: Failed) -> None:
        self._failed.append(job)
        self.wake()

    def bury(self, job: Dead) -> None:
        self._dead.append(job)
        self.wake()

    def held(self) -> dict[bytes, int]:
        """Entries that have ended here and are not settled in Redis yet, each with its delivery.

        Also called from the keeper's thread: a list is copied in one step.
        """
        held = {job._entry_id: job._delivery for job in (*self._done.copy(), *self._done_marked.copy())}
        held.update((job.entry_id, job.delivery) for job in self._failed.copy())
        held.update((job.entry_id, job.delivery) for job in self._dead.copy())
        return held

    async def _run(self) -> None:
        while True:
            while not (self._done or self._done_marked or self._failed or self._dead):
                if self._is_stopping:
                    return
                await self._sleep()
            try:
                await self._settle()
            except RedisTrouble as error:
                pause = self._outage.goes_on(error)
                self._mend(error)
                await asyncio.sleep(pause)
            else:
                self._outage.is_over()

    async def _settle(self) -> None:
        """One batch of each kind. A batch leaves its list only when Redis has answered."""
        if self._done:
            batch = self._done[:ACK_BATCH]
            await self._broker.ack(self._group, [job._entry_id for job in batch])
            del self._done[: len(batch)]
        if self._done_marked:
            marked = self._done_marked[:OUTCOME_BATCH]
            await self._broker.finish(self._group, [(job._entry_id, job.id) for job in marked])
            del self._done_marked[: len(marked)]
        if self._failed:
            failed = self._failed[:OUTCOME_BATCH]
            moved = await self._broker.reschedule(self._group, self._consumer, failed)
            del self._failed[: len(failed)]
            self._on_rescheduled(min(job.delay_ms for job in failed))
            if moved < len(failed):
                self._on_fenced()
        if self._dead:
            dead = self._dead[:OUTCOME_BATCH]
            buried = await self._broker.bury(self._group, self._consumer, self._dlq_max_len, dead)
            del self._dead[: len(dead)]
            if buried < len(dead):
                self._on_fenced()

    def _mend(self, error: RedisTrouble) -> None:
        """A group that is gone is made anew by the reader; what is left to do here is to connect anew."""
        if remedy_for(error) in (Remedy.MOVED, Remedy.LOCKED):
            self._broker.connection.drop(error)
