"""Renews this worker's lease and its hold on entries, and reports its holdings when the group is gone.

The same call writes the worker's record, and finds whether the queue is paused, whether jobs are cancelled and how
many workers live.
Where a round trip takes so long that no lease can hold, the worker logs that, gives up its own lease and runs nothing,
so that others get the jobs. All methods run in the heartbeat's thread, except those that say otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from .._core.clock import lease_clock
from .._core.limits import REGROUP_S
from .._redis.broker import Broker
from .._redis.error_actions import ErrorAction, action_for
from ..errors import RedisTrouble
from .group_recovery import GroupRecovery
from .outage import Outage
from .queue_watch import QueueWatch
from .record_maker import RecordMaker
from .round_trips import RoundTrips
from .shared import Shared
from .thread_lanes import AnyLanes

IDS_A_CALL = 500


class RenewalTimes(NamedTuple):
    lease_ms: int
    renew_s: float  # between renewals of the lease
    hold_s: float  # between renewals of the hold on entries, which only consumers without a lease look at


class LeaseRenewal:
    """acquire_first_lease_and_choose_renew_at() takes the first lease.

    Each try_renew_and_choose_pause_s() then sends one renewal.
    """

    def __init__(
        self,
        broker: Broker,
        shared: Shared,
        times: RenewalTimes,
        *,
        lanes: AnyLanes,
        recovery: GroupRecovery,
        queue_watch: QueueWatch,
        record_maker: RecordMaker,
        round_trips: RoundTrips,
        call_soon_in_worker_loop_if_running: Callable[..., None],
    ) -> None:
        self._broker = broker
        self._group, self._consumer = shared.group, shared.consumer
        self._lease, self._holdings = shared.lease, shared.holdings
        self._may_have_orphans, self._living_workers = shared.may_have_orphans, shared.living_workers
        self._ended_leases = shared.ended_leases
        self._lease_ms, self.every_s, self._hold_s = times
        self._lanes = lanes
        self._recovery = recovery
        self._queue_watch = queue_watch
        self._record_maker = record_maker
        self._round_trips = round_trips
        self._call_soon_in_worker_loop_if_running = call_soon_in_worker_loop_if_running
        self._held_before: dict[bytes, int] = {}
        self._hold_at = 0.0
        self._until = 0.0  # when the last lease ends
        self._has_left = False
        self._reporting = asyncio.Lock()
        group = f"the group of worker {self._consumer}"
        self._groupless = Outage(
            f"{group} is gone; it is made again once all workers have reported what they hold", f"{group} is back"
        )
        self._outage = Outage(
            f"worker {self._consumer} cannot renew its lease and keeps trying",
            f"worker {self._consumer} has renewed its lease",
        )

    @property
    def is_group_missing(self) -> bool:
        """Whether the group is gone and not made again yet."""
        return self._groupless.is_on

    async def acquire_first_lease_and_choose_renew_at(self) -> float:
        """Waits until the first lease holds; returns when to renew it. Raises permanent errors."""
        while True:
            wait_s = await self.try_renew_and_choose_pause_s(is_first=True)
            if lease_clock() < self._until:
                return self._until - self._lease_ms / 1000 + self.every_s
            await asyncio.sleep(wait_s)

    async def try_renew_and_choose_pause_s(self, *, is_first: bool = False) -> float:
        """Renews the lease, and from time to time the hold on entries. Returns how long to wait before the next."""
        was_over = self._lease.is_over
        if was_over and not is_first:
            self._lease.record_trouble()
        try:
            if was_over and not await self._round_trips.check_or_measure_whether_lease_can_hold():
                await self._renew_held_or_leave_group()
                return self.every_s
            entries, sent_at = self._take_entries_due_for_renewal(was_over), lease_clock()
            lost = await self._renew_lease_and_entries_and_find_lost(entries)
        except RedisTrouble as error:
            self._round_trips.require_new_measurement()
            self._hold_at = 0.0  # what was to be renewed with it is renewed by the next call
            action = action_for(error)
            if action is ErrorAction.NO_GROUP:
                return await self._report_held_and_choose_pause_s(error)
            if is_first and action in (ErrorAction.FATAL, ErrorAction.REAUTHENTICATE):
                raise
            self._lease.record_trouble()
            return min(self._outage.record_error_and_choose_pause_s(error), self.every_s)
        self._round_trips.record_round_trip_and_set_timeout(lease_clock() - sent_at)
        return self._apply_renewal_and_choose_pause_s(sent_at, lost, was_over=was_over)

    def _take_entries_due_for_renewal(self, was_over: bool) -> list[tuple[bytes, int]]:
        """Returns all held entries after a lapse, because other workers may have taken any of them.

        Otherwise, when it is time, returns those that were held at the last renewal too: others were delivered since.
        """
        now = lease_clock()
        if not was_over and now < self._hold_at - self.every_s / 2:
            return []
        held, before = self._holdings.collect_held_delivery_numbers(), self._held_before
        self._held_before, self._hold_at = held, now + self._hold_s
        return list(held.items() if was_over else held.items() & before.items())

    async def _renew_lease_and_entries_and_find_lost(self, entries: list[tuple[bytes, int]]) -> set[bytes]:
        """Returns the entries that are lost."""
        await self._queue_watch.try_to_subscribe()
        me = (self._group, self._consumer, self._lease_ms)
        first, *others = (entries[start : start + IDS_A_CALL] for start in range(0, max(len(entries), 1), IDS_A_CALL))
        record, kept_ms = self._record_maker.make_worker_record(), self._record_maker.kept_ms
        answers = await asyncio.gather(
            self._broker.renew_lease_and_held_entries(*me, first, record=record, record_kept_ms=kept_ms),
            *(self._broker.renew_lease_and_held_entries(*me, batch) for batch in others),
        )
        if answers[0].flags is not None:
            self._queue_watch.pass_on_pause_and_request_check(answers[0].flags)
        self._living_workers.set_count(answers[0].living_count)
        if answers[0].ended_count:
            self._call_soon_in_worker_loop_if_running(self._ended_leases.send)
        return {entry_id for answer in answers for entry_id in answer.lost}

    async def _renew_held_or_leave_group(self) -> None:
        """No lease can be held here: Redis keeps one only for the jobs that still run."""
        if held := list(self._holdings.collect_held_delivery_numbers().items()):
            await self._renew_lease_and_entries_and_find_lost(held)
        elif not self._has_left:  # other workers take what was read here and not started at once
            self._has_left = True
            me = (self._group, self._consumer)
            # A renewal may follow before this call reaches Redis: it ends no other lease than the one that is read.
            await self._broker.leave_group_if_lease_is_same(*me, await self._broker.read_lease_end_or_zero(*me))

    def _apply_renewal_and_choose_pause_s(self, sent_at: float, lost_ids: set[bytes], *, was_over: bool) -> float:
        """Applies a renewal that was answered; one whose answer came too late extends no lease, and the next follows at
        once."""
        self._outage.end()
        self._has_left = False
        if self._groupless.is_on:
            self._groupless.end()
            self._recovery.note_group_exists()
            # Entries that were handed back after the last report are pending for us by that report.
            self._call_soon_in_worker_loop_if_running(self._may_have_orphans.set)
        until, now = sent_at + self._lease_ms / 1000, lease_clock()
        if now >= (until if was_over else self._lease.until):
            return 0.0  # it came too late; if the lease ended only meanwhile, all that is held is renewed next
        self._until = until
        if was_over:
            self._call_soon_in_worker_loop_if_running(self._forget_lost_renew_lease_and_wake_lanes, until, lost_ids)
        else:
            self._lease.renew(until)
            if lost_ids:
                self._call_soon_in_worker_loop_if_running(self._drop_lost_jobs_and_flag_orphans, lost_ids)
        return self.every_s

    def _forget_lost_renew_lease_and_wake_lanes(self, until: float, lost_ids: set[bytes]) -> None:
        """Runs in the worker's loop, in one step: no lost entry may start because the lease holds again."""
        self._drop_lost_jobs_and_flag_orphans(lost_ids)
        self._lease.renew_after_lapse(until)
        self._lanes.wake_after_lapse()

    def _drop_lost_jobs_and_flag_orphans(self, lost_ids: set[bytes]) -> None:
        """Runs in the worker's loop. An entry that was lost by one delivery may have come back by another."""
        if self._lanes.drop_lost_waiting_and_undecoded_jobs(lost_ids):
            self._may_have_orphans.set()

    async def _report_held_and_choose_pause_s(self, error: RedisTrouble) -> float:
        """The group is gone: reports what this worker holds. Returns how long to wait before the next renewal."""
        async with self._reporting:
            self._groupless.record_error_and_choose_pause_s(error)
            sent_at = lease_clock()
            was_over = sent_at >= self._lease.until
            try:
                is_back = await self._recovery.report_held_unless_group_exists(self._broker)
            except RedisTrouble as trouble:
                return min(self._outage.record_error_and_choose_pause_s(trouble), self.every_s)
        self._outage.end()
        if is_back:
            return 0.0
        # Else nothing may start before its owner is known, which is when the group is back. The report takes its time:
        # if the lease has ended meanwhile, lanes may have stopped, and the renewal after a lapse wakes them.
        if not was_over and not self._lease.is_over:
            self._lease.renew(sent_at + self._lease_ms / 1000)
        await self._recovery.find_and_log_awaited_worker_if_due(self._broker)  # behind the renewal: it takes its time
        return REGROUP_S
