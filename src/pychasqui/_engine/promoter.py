"""Moves due delayed jobs to the stream.

One process leads. It sleeps until the next job is due, and hears of one that is due sooner: whoever adds it publishes
that. Because messages can get lost, and official producers publish nothing, it looks by itself, too: every half second
while anything is delayed, and ten times a second for a minute after a job came unannounced. Besides, every worker
promotes what it has rescheduled itself when that is due, leader or not: the script is atomic, the lease only spares
the server the polling. Whatever happens to Redis, it goes on; only stop() ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from .._redis.broker import Broker
from .._redis.replies import Promotion
from ..config import PROMOTE_BATCH, PROMOTE_EVERY_S, PROMOTER_LEASE_MS
from ..sinks import PromoterTick, Record
from .leader import Leader
from .service import Outage, until_free_s

log = logging.getLogger("chasqui.promoter")

ALERT_FOR_S = 60.0
ALERT_EVERY_S = 0.1  # the official promoter's own interval
LOOK_S = PROMOTER_LEASE_MS / 1500  # while nothing is delayed: often enough to keep the lease


class Promoter(Leader):
    title = role = "promoter"

    def __init__(
        self, broker: Broker, holder: str, *, events_max_len: int = 0, tell: Callable[[Record], None] | None = None
    ) -> None:
        outage = Outage("delayed jobs wait, the promoter keeps trying", "delayed jobs are promoted again")
        super().__init__(broker.connection, outage, tell)
        self._broker = broker
        self._holder = holder
        self._events_max_len = events_max_len
        self._own_due = float("inf")  # when the soonest job that this worker has rescheduled is due, monotonic
        self._alert_until = 0.0

    def expect(self, delay_ms: int) -> None:
        """This worker has rescheduled a job that is due in so many ms."""
        due = monotonic() + delay_ms / 1000
        if due < self._own_due:
            self._own_due = due
            self.wake()

    def _soonest(self) -> float:
        return min(self._own_due, self._next_due)

    async def _let_go(self) -> None:
        await self._broker.yield_promotion(self._holder)

    async def _look(self) -> float:
        return await self._tick(hears=await self._broker.hear_of_due(self.hear))

    async def _tick(self, *, hears: bool) -> float:
        """Promote what is due; returns how long to wait at the most."""
        now = monotonic()
        mine_is_due, was_expected = now >= self._own_due, now >= self._soonest()
        if mine_is_due:
            self._own_due = float("inf")
        self._next_due = float("inf")
        done = await self._broker.promote(
            self._holder,
            PROMOTER_LEASE_MS,
            PROMOTE_BATCH,
            must_lead=not mine_is_due,
            events_max_len=self._events_max_len,
        )
        self._leads = done.leads
        wait_s = self._plan(done, now, mine_is_due=mine_is_due, was_expected=was_expected, hears=hears)
        if self._tell is not None:
            await self._report(self._tell, done)
        return wait_s

    def _plan(self, done: Promotion, now: float, *, mine_is_due: bool, was_expected: bool, hears: bool) -> float:
        """When to look again."""
        if done.set_aside:
            log.error("%d delayed members were no jobs and are in the dead letters now", done.set_aside)
        if not (done.leads or mine_is_due):
            return until_free_s(done.next_due_ms, LOOK_S)
        moved = done.promoted + done.set_aside
        if (moved and not was_expected) or (done.next_due_ms >= 0 and not hears):
            self._alert_until = now + ALERT_FOR_S
        if moved and done.next_due_ms == 0:  # the batch was full, by its jobs or by its bytes
            return 0.0
        if done.next_due_ms >= 0:
            next_due = monotonic() + done.next_due_ms / 1000
            if done.leads:
                self._next_due = min(self._next_due, next_due)  # it may have heard of one that came since
            if mine_is_due:
                self._own_due = min(self._own_due, next_due)
        if done.leads and monotonic() < self._alert_until:
            return ALERT_EVERY_S
        if done.leads and done.next_due_ms >= 0:
            return PROMOTE_EVERY_S
        return LOOK_S

    async def _report(self, tell: Callable[[Record], None], done: Promotion) -> None:
        """Tell how it went. How much is delayed still is asked only for this."""
        self._tell_lead()
        if done.leads or done.promoted:
            depth, lag_ms = await self._broker.backlog()
            tell(PromoterTick(done.promoted, depth, lag_ms))
