"""Moves due delayed jobs to the stream.

One process leads. It sleeps until the next job is due. Producers and workers publish when they add or reschedule a job
that is due sooner. Because messages can get lost, and official producers publish nothing, the leader looks by itself,
too: every half second while anything is delayed, and ten times a second for a minute after a job came unannounced. The
other processes look only whether one leads.
"""

from __future__ import annotations

from collections.abc import Callable

from .._core import clock
from .._core.guarded_log import GuardedLogger
from .._core.limits import PROMOTE_BATCH, PROMOTE_EVERY_S, PROMOTER_LEASE_MS
from .._redis.broker import Broker
from .._redis.replies import Promotion
from ..errors import ReplyError
from ..metrics import PromoterTick, Record
from .leader import LeaderService
from .living_workers import LivingWorkers
from .outage import Outage
from .shared import OnDeath

log = GuardedLogger("chasqui.promoter")

ALERT_FOR_S = 60.0
ALERT_EVERY_S = 0.1  # the official promoter's own interval


class PromoterService(LeaderService):
    title = role = "promoter"
    what_waits = "delayed jobs"

    def __init__(
        self,
        broker: Broker,
        holder: str,
        *,
        on_death: OnDeath,
        living_workers: LivingWorkers | None = None,
        events_max_len: int = 0,
        every_s: float = PROMOTE_EVERY_S,
        batch: int = PROMOTE_BATCH,
        lease_ms: int = PROMOTER_LEASE_MS,
        record_metric: Callable[[Record], None] | None = None,
    ) -> None:
        outage = Outage("delayed jobs wait, the promoter keeps trying", "delayed jobs are promoted again")
        super().__init__(
            broker,
            outage,
            on_death=on_death,
            living_workers=living_workers or LivingWorkers(),
            record_metric=record_metric,
        )
        self._broker = broker
        self._holder = holder
        self._events_max_len = events_max_len
        self._every_s = every_s
        self._batch = batch
        self._lease_ms = lease_ms
        self._rest_s = lease_ms / 1500  # while nothing is delayed: often enough to keep the lease
        self._hinted_due = 0.0  # when the soonest job is due that was published to the leader, monotonic
        self._alert_until = 0.0
        self._refusals = Outage(
            "Redis refuses some delayed jobs that are due: they stay delayed and are tried again",
            "delayed jobs are promoted again, all of them",
        )

    def apply_or_publish_due_hint_if_needed(self, delay_ms: int) -> None:
        """Publishes that this worker has rescheduled a job that is due in this many ms, unless the leader will know."""
        if self._leads:
            self.apply_due_hint_if_leading(delay_ms / 1000)
            return
        now = clock.monotonic()
        due = now + delay_ms / 1000
        # The leader looks at least every rest_s, and at each published time, and learns then what is due next.
        if delay_ms / 1000 < 2 * self._rest_s and (due < self._hinted_due or self._hinted_due <= now):
            self._hinted_due = due
            self._broker.publish_due_hint(delay_ms)

    async def _release_leader_lease(self) -> None:
        await self._broker.release_promoter_lease_if_held(self._holder)

    async def _try_to_subscribe_to_due_hints(self) -> bool:
        return await self._broker.try_to_subscribe_to_due_hints(self.apply_due_hint_if_leading)

    async def _do_due_if_leader_and_choose_pause_s(self, *, gets_no_messages: bool) -> float:
        now = clock.monotonic()
        was_expected = now >= self._next_due
        self._next_due = float("inf")
        done = await self._broker.try_to_lead_and_promote_batch(
            self._holder, self._lease_ms, self._batch, events_max_len=self._events_max_len
        )
        self._note_leader_and_log_changes(done.other)
        if done.other is not None:
            return self._choose_standby_pause_s(done.next_due_ms, self._rest_s)
        if done.refusal:
            self._refusals.record_error_and_choose_pause_s(ReplyError(done.refusal))
        else:
            self._refusals.end()
        wait_s = self._note_promotion_and_choose_pause_s(
            done, now, was_expected=was_expected, gets_no_messages=gets_no_messages
        )
        if self._record_metric is not None:
            await self._count_delayed_and_record_tick(self._record_metric, done)
        return wait_s

    def _note_promotion_and_choose_pause_s(
        self, promotion: Promotion, now: float, *, was_expected: bool, gets_no_messages: bool
    ) -> float:
        """Returns in how many seconds to look again."""
        if promotion.buried_count:
            self.buried_count += promotion.buried_count
            log.error("%d delayed members were no jobs and are in the dead letters now", promotion.buried_count)
        moved = promotion.promoted + promotion.buried_count
        if (moved and not was_expected) or (promotion.next_due_ms >= 0 and gets_no_messages):
            self._alert_until = now + ALERT_FOR_S
        if moved and promotion.next_due_ms == 0:  # the batch was full, by its jobs or by its bytes
            return 0.0
        if promotion.next_due_ms > 0:  # if it is 0, what is due was refused: that can wait
            # A message may have announced a sooner one meanwhile.
            self._next_due = min(self._next_due, clock.monotonic() + promotion.next_due_ms / 1000)
        if clock.monotonic() < self._alert_until:
            return min(ALERT_EVERY_S, self._every_s)
        return min(self._every_s, self._rest_s) if promotion.next_due_ms >= 0 else self._rest_s

    async def _count_delayed_and_record_tick(
        self, record_metric: Callable[[Record], None], promotion: Promotion
    ) -> None:
        """Records the metric. Only this asks Redis how many jobs are delayed."""
        depth, lag_ms = await self._broker.count_delayed_and_read_overdue_ms()
        record_metric(PromoterTick(promotion.promoted, depth, lag_ms))
