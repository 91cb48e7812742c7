"""Moves due delayed jobs to the stream.

One worker leads and asks every half second while anything is delayed, and when the next job is due. Besides, every
worker promotes what it has rescheduled itself when that is due, leader or not: the script is atomic, the lease only
spares the server the polling. Whatever happens to Redis, it goes on; only stop() ends it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import monotonic

from .._redis.broker import Broker
from .._redis.remedies import Remedy, remedy_for
from ..config import PROMOTE_BATCH, PROMOTE_EVERY_S, PROMOTER_LEASE_MS
from ..errors import RedisTrouble
from .service import Outage, Service

log = logging.getLogger("chasqui.promoter")


class Promoter(Service):
    title = "promoter"

    def __init__(self, broker: Broker, holder: str) -> None:
        super().__init__()
        self._broker = broker
        self._holder = holder
        self._own_due = float("inf")  # when the soonest job that this worker has rescheduled is due, monotonic
        self._leads = False
        self._outage = Outage("delayed jobs wait, the promoter keeps trying", "delayed jobs are promoted again")

    def expect(self, delay_ms: int) -> None:
        """This worker has rescheduled a job that is due in so many ms."""
        due = monotonic() + delay_ms / 1000
        if due < self._own_due:
            self._own_due = due
            self.wake()

    async def end(self, patience_s: float) -> None:
        await super().end(patience_s)
        if self._leads and self._broker.connection.live_socket() is not None:
            with suppress(RedisTrouble, TimeoutError):  # it ends by itself
                async with asyncio.timeout(patience_s):
                    await self._broker.yield_promotion(self._holder)

    async def _run(self) -> None:
        while not self._is_stopping:
            try:
                wait_s = await self._tick()
            except RedisTrouble as error:
                wait_s = self._outage.goes_on(error)
                if remedy_for(error) in (Remedy.MOVED, Remedy.LOCKED):
                    self._broker.connection.drop(error)
            else:
                self._outage.is_over()
            await self._sleep(min(wait_s, self._own_due - monotonic()))

    async def _tick(self) -> float:
        """Promote what is due; returns how long to wait."""
        mine_is_due = monotonic() >= self._own_due
        if mine_is_due:
            self._own_due = float("inf")
        done = await self._broker.promote(self._holder, PROMOTER_LEASE_MS, PROMOTE_BATCH, must_lead=not mine_is_due)
        self._leads = done.leads
        if done.set_aside:
            log.error("%d delayed members were no jobs and are in the dead letters now", done.set_aside)
        if done.promoted + done.set_aside >= PROMOTE_BATCH:
            return 0.0
        if mine_is_due and done.next_due_ms >= 0:
            self._own_due = min(self._own_due, monotonic() + done.next_due_ms / 1000)
        if done.leads and done.next_due_ms >= 0:
            return min(done.next_due_ms / 1000, PROMOTE_EVERY_S)
        return PROMOTER_LEASE_MS / 2000  # often enough to keep the lease, or to gain it when its holder dies
