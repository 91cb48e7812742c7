"""LeaderService: the loop of promoter and scheduler. Of all processes one leads, and sleeps until the next job is due.

A message wakes the leader for a job that is due sooner, and it looks by itself as well, because messages can get lost.
A message is only a hint: Redis says what is due, and a flood of messages causes one look per HINTS_APART_S. The lease
only saves the server the polling of the other processes: promoting and firing are safe without it. Whatever goes wrong
in one look, the next look comes; only end() ends the loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from .._core import clock
from .._core.guarded_log import GuardedLogger
from .._core.limits import MAX_LEADER_LEASE_MS
from .._redis.broker import Broker
from .._redis.repeatables import RepeatablesBroker
from .._redis.replies import OtherLeader
from ..errors import RedisTrouble
from ..metrics import LockOutcome, Record
from .living_workers import LivingWorkers
from .outage import Outage
from .service import Service
from .shared import OnDeath

log = GuardedLogger("chasqui.leaders")

HINTS_APART_S = 0.005
MAX_POLLING_STANDBYS = 32  # of more workers that do not lead, together as many look as often as if there were this many
LONGEST_STANDBY_S = 20.0  # on average: each pause is up to half longer or shorter
STALLED_S = 5.0  # what has been due for this long, while another process leads, is not late but stuck


class LeaderService(Service):
    """A subclass has _do_due_if_leader_and_choose_pause_s(), which is called again and again, and
    _release_leader_lease()."""

    role: Literal["promoter", "scheduler"]
    what_waits: str  # while no process leads

    def __init__(
        self,
        broker: Broker | RepeatablesBroker,
        outage: Outage,
        *,
        on_death: OnDeath,
        living_workers: LivingWorkers,
        record_metric: Callable[[Record], None] | None,
    ) -> None:
        super().__init__(on_death)
        self._living_workers = living_workers
        self._lease_broker = broker
        self._outage = outage
        self._record_metric = record_metric  # None: no sink wants metrics
        self._logged_lead: bool | None = None  # whether this one led when that was last logged
        self._leads = False
        self._next_due = float("inf")  # when the leader knows the next one to be due, monotonic
        self._looked_at = 0.0
        self._cut_lease_holder: str | None = None  # whose lease was cut last
        self._overdue_from: float | None = None  # since when each look finds things that are long overdue
        self._stalled_by: str | None = None
        self.buried_count = 0  # what could not be read and went to the dead letters

    @property
    def trouble(self) -> str | None:
        """Why delayed jobs or repeatables are not moved."""
        if self._outage.trouble is not None:
            return f"{self.what_waits} wait: {self._outage.trouble}"
        if self._stalled_by is not None:
            return f"{self.what_waits} wait: {self._stalled_by!r} holds the {self.role}'s lease and moves nothing"
        return None

    def apply_due_hint_if_leading(self, due_in_s: float) -> None:
        """A message says that something is due in `due_in_s`."""
        due = max(clock.monotonic() + due_in_s, self._looked_at + HINTS_APART_S)
        if self._leads and due < self._next_due:
            self._next_due = due
            self.wake_if_asleep()

    async def end(self, timeout_s: float) -> None:
        await super().end(timeout_s)
        if self._leads and self._lease_broker.is_connected:
            with suppress(RedisTrouble, TimeoutError):  # it ends by itself
                async with asyncio.timeout(timeout_s):
                    await self._release_leader_lease()

    async def _subscribe_do_due_and_choose_pause_s(self) -> float:
        """Returns how long to wait for the next look, if nothing is due sooner.

        Only the leader subscribes: a message costs the server as much as it has subscribers.
        """
        if self._leads:
            return await self._do_due_if_leader_and_choose_pause_s(
                gets_no_messages=not await self._try_to_subscribe_to_due_hints()
            )
        wait_s = await self._do_due_if_leader_and_choose_pause_s(gets_no_messages=False)
        return 0.0 if self._leads else wait_s  # what was published until it leads and is subscribed may be due sooner

    async def _try_to_subscribe_to_due_hints(self) -> bool:
        """Returns whether messages come."""
        raise NotImplementedError

    async def _do_due_if_leader_and_choose_pause_s(self, *, gets_no_messages: bool) -> float:
        """Does what is due, if this process leads; returns how long to wait for the next look."""
        raise NotImplementedError

    async def _release_leader_lease(self) -> None:
        raise NotImplementedError

    async def _run_until_stopped(self) -> None:
        while not self._is_stopping:
            self._looked_at = clock.monotonic()
            try:
                wait_s = await self._subscribe_do_due_and_choose_pause_s()
            except Exception as error:  # noqa: BLE001  the border of this part: a look can be made again, whatever it was
                wait_s = self._outage.record_error_and_choose_pause_s(error)
                self._next_due = float("inf")
            else:
                self._outage.end()
            look_at = clock.monotonic() + wait_s
            while not self._is_stopping and (left := min(look_at, self._find_next_known_due()) - clock.monotonic()) > 0:
                await self._sleep_until_woken(left)

    def _find_next_known_due(self) -> float:
        """Returns when something is known to be due. While looks fail, nothing is: the pauses between them hold."""
        return float("inf") if self._outage.is_on else self._next_due

    def _choose_standby_pause_s(self, lease_left_ms: int, usual_max_s: float) -> float:
        """Returns how long to wait for a lease that another process holds.

        That is until it ends if it is not renewed (-1: it has no end), so that nothing is held up for longer than that.
        Many workers share the looks, unless it moves nothing: one of them looks soon after the end of the lease,
        whenever that is.
        """
        if self._living_workers.count > MAX_POLLING_STANDBYS and self._overdue_from is None:
            pause_s = self._living_workers.scale_pause_by_workers(usual_max_s, MAX_POLLING_STANDBYS)
            return min(pause_s, LONGEST_STANDBY_S) * random.uniform(0.5, 1.5)
        return usual_max_s if lease_left_ms < 0 else min(usual_max_s, (lease_left_ms + 1) / 1000)

    def _note_leader_and_log_changes(self, other_leader: OtherLeader | None) -> None:
        """Notes which process leads, and whether it moves what is due."""
        self._leads = other_leader is None
        if self._leads != self._logged_lead:
            self._logged_lead = self._leads
            log.debug("%s: %s", self.role, "this one leads" if other_leader is None else f"{other_leader.name!r} leads")
            if self._record_metric is not None:
                self._record_metric(LockOutcome("acquired" if self._leads else "held", self.role))
        if other_leader is not None and other_leader.was_cut and other_leader.name != self._cut_lease_holder:
            self._cut_lease_holder = other_leader.name
            log.warning(
                "%r held the %s's lease without an end, or with one beyond %d s; it is cut to that: unless it is "
                "renewed, another process leads then",
                other_leader.name,
                self.role,
                MAX_LEADER_LEASE_MS // 1000,
            )
        self._track_and_log_stall(other_leader)

    def _track_and_log_stall(self, other_leader: OtherLeader | None) -> None:
        if other_leader is None or other_leader.overdue_ms < STALLED_S * 1000:
            if self._stalled_by is not None:
                log.info("%s: %s are moved again", self.role, self.what_waits)
            self._overdue_from = self._stalled_by = None
            return
        if self._overdue_from is None:  # it may have been stored this moment, and in the past
            self._overdue_from = clock.monotonic()
        if self._stalled_by is None and clock.monotonic() - self._overdue_from >= STALLED_S:
            self._stalled_by = other_leader.name
            log.warning(
                "%s have been due for %d s, but %r holds the %s's lease and moves nothing: end that process, or delete "
                "the lease if there is none",
                self.what_waits,
                other_leader.overdue_ms // 1000,
                other_leader.name,
                self.role,
            )
