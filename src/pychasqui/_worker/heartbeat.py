"""Renews this worker's lease and its hold on entries, from a thread of its own.

A handler that blocks the event loop must not lose its job to another worker, so the thread has a loop and a connection
to itself. The same thread reports the holdings when the group is gone.

Renewals are sent every third of a lease whether the last was answered or not, so that a lease holds also where a round
trip takes half of it. Where it takes longer, no lease can hold: the worker logs that, gives up its own lease and runs
nothing, so that others get the jobs.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

from .._core.clock import lease_clock
from .._core.limits import REGROUP_S
from .._redis.broker import Broker
from .._redis.error_actions import ErrorAction, action_for
from ..errors import RedisTrouble
from .group_recovery import GroupRecovery
from .lanes import Lanes
from .loop_thread import LoopThread
from .loop_watch import LoopWatch
from .outage import Outage
from .pause_watch import PauseWatch
from .round_trips import RoundTrips
from .shared import Shared
from .worker_record_writer import WorkerRecordWriter

IDS_A_CALL = 500
LONGEST_SLEEP_S = 0.5  # lease_clock() goes on while the machine sleeps, and a timer does not
MOST_UNANSWERED = 4  # renewals on their way at once


class HeartbeatTimes(NamedTuple):
    lease_ms: int
    renew_s: float  # between renewals of the lease
    hold_s: float  # between renewals of the hold on entries, which only consumers without a lease look at


class Heartbeat:
    """start() -> renews every third of a lease -> stop(). The first renewal is awaited: a worker begins alive."""

    def __init__(
        self,
        broker: Broker,
        shared: Shared,
        times: HeartbeatTimes,
        *,
        thread: LoopThread,
        lanes: Lanes,
        recovery: GroupRecovery,
        round_trips: RoundTrips,
        loop_watch: LoopWatch,
        pause_watch: PauseWatch,
        record_writer: WorkerRecordWriter,
    ) -> None:
        self._broker = broker
        self._group, self._consumer = shared.group, shared.consumer
        self._lease, self._holdings = shared.lease, shared.holdings
        self._may_have_orphans = shared.may_have_orphans
        self._lease_ms, self._renew_s, self._hold_s = times
        self._thread = thread
        self._lanes = lanes
        self._recovery = recovery
        self._round_trips = round_trips
        self._loop_watch = loop_watch
        self._pause_watch = pause_watch
        self._record_writer = record_writer
        self._wakes = asyncio.Event()
        self._renew_at = 0.0
        self._unanswered = 0
        self._looking: asyncio.Task[None] | None = None
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
        shared.group_gone.listen(self._hurry)

    async def start(self) -> None:
        await self._thread.start(self._run)

    async def stop(self) -> None:
        """Ends also a renewal that waits for a Redis that is away."""
        await self._thread.stop()

    def _hurry(self) -> None:
        """Runs in the worker's loop. The group is gone: the next renewal, which finds that, is sent now."""
        self._thread.call_in_thread(self._renew_in, 0.0)

    # The thread's loop ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._begin()
            self._renew_at = self._until - self._lease_ms / 1000 + self._renew_s
            async with asyncio.TaskGroup() as tasks:  # ends with the first of them that fails
                tasks.create_task(self._loop_watch.run())
                self._looking = tasks.create_task(self._look_around_first())
                while True:
                    await self._sleep()
                    if self._may_renew() and lease_clock() >= self._renew_at:
                        self._renew_at = lease_clock() + self._renew_s
                        self._unanswered += 1
                        tasks.create_task(self._renew_and_look_around(tasks))
        finally:
            await self._broker.close()

    async def _sleep(self) -> None:
        """Until it is time for a renewal."""
        left_s = self._renew_at - lease_clock() if self._may_renew() else LONGEST_SLEEP_S
        with suppress(TimeoutError):
            async with asyncio.timeout(min(LONGEST_SLEEP_S, max(left_s, 0.0))):
                await self._wakes.wait()
        self._wakes.clear()

    def _may_renew(self) -> bool:
        """One at a time while the group is gone; else also while earlier ones are on their way."""
        return self._unanswered < (1 if self._groupless.is_on else MOST_UNANSWERED)

    def _renew_in(self, seconds: float) -> None:
        self._renew_at = min(self._renew_at, lease_clock() + seconds)
        self._wakes.set()

    async def _begin(self) -> None:
        """Until the first lease holds. Raises an error that another try would not solve."""
        while True:
            wait_s = await self._renew(is_first=True)
            if lease_clock() < self._until:
                return
            await asyncio.sleep(wait_s)

    async def _renew_and_look_around(self, tasks: asyncio.TaskGroup) -> None:
        try:
            wait_s = await self._renew()
        finally:
            self._unanswered -= 1
            self._wakes.set()
        if wait_s < self._renew_s:
            self._renew_in(wait_s)
        elif self._looking is None or self._looking.done():
            self._looking = tasks.create_task(self._look_around())

    async def _look_around_first(self) -> None:
        """A worker begins with a lease, and knows whether the queue is paused."""
        await self._look_around()
        self._thread.has_begun()

    async def _look_around(self) -> None:
        with suppress(RedisTrouble):  # it can wait: the lease could not
            await self._pause_watch.look()
            await self._record_writer.write()  # Redis may have no memory for it

    # Renewing -------------------------------------------------------------------------------------------------------

    async def _renew(self, *, is_first: bool = False) -> float:
        """Renew the lease, and from time to time the hold on entries. Returns how long to wait before the next."""
        was_over = self._lease.is_over
        if was_over and not is_first:
            self._lease.note_trouble()
        try:
            if was_over and not await self._round_trips.allow_a_lease():
                await self._hold_without_a_lease()
                return self._renew_s
            entries, sent_at = self._entries_to_renew(was_over), lease_clock()
            lost = await self._send_renewals(entries)
        except RedisTrouble as error:
            self._round_trips.note_failure()
            action = action_for(error)
            if action is ErrorAction.NO_GROUP:
                return await self._report(error)
            if is_first and action in (ErrorAction.FATAL, ErrorAction.REAUTHENTICATE):
                raise
            self._lease.note_trouble()
            return min(self._outage.pause_after(error), self._renew_s)
        self._round_trips.note_renewal(lease_clock() - sent_at)
        return self._see_renewed(sent_at, lost, was_over=was_over)

    def _entries_to_renew(self, was_over: bool) -> list[tuple[bytes, int]]:
        """After a lapse all: whatever is held may be another worker's by now. Else, when it is time, what was held the
        last time already: the rest is fresh by itself."""
        now = lease_clock()
        if not was_over and now < self._hold_at - self._renew_s / 2:
            return []
        held, before = self._holdings.held(), self._held_before
        self._held_before, self._hold_at = held, now + self._hold_s
        return list(held.items() if was_over else held.items() & before.items())

    async def _send_renewals(self, entries: list[tuple[bytes, int]]) -> set[bytes]:
        """Returns the entries that are lost."""
        batches = [entries[start : start + IDS_A_CALL] for start in range(0, max(len(entries), 1), IDS_A_CALL)]
        me = (self._group, self._consumer, self._lease_ms)
        lost = await asyncio.gather(*(self._broker.renew_worker_lease(*me, batch) for batch in batches))
        return {entry_id for some in lost for entry_id in some}

    async def _hold_without_a_lease(self) -> None:
        """No lease can be held here: one is kept at Redis only for what still runs."""
        if held := list(self._holdings.held().items()):
            await self._send_renewals(held)
        elif not self._has_left:  # what was read here and not started goes to others at once
            self._has_left = True
            await self._broker.leave_group(self._group, self._consumer)

    def _see_renewed(self, sent_at: float, lost: set[bytes], *, was_over: bool) -> float:
        self._outage.end()
        self._has_left = False
        if self._groupless.is_on:
            self._groupless.end()
            # What was handed back after the last report is ours by that report.
            self._thread.call_in_worker_loop(self._may_have_orphans.set)
        until, now = sent_at + self._lease_ms / 1000, lease_clock()
        if now >= (until if was_over else self._lease.until):
            return 0.0  # too late to be of use; what is held must be looked at once more if it was over only meanwhile
        self._until = until
        if was_over:
            self._thread.call_in_worker_loop(self._begin_again, until, lost)
        else:
            self._lease.renew(until)
            if lost:
                self._thread.call_in_worker_loop(self._lose, lost)
        return self._renew_s

    def _begin_again(self, until: float, lost: set[bytes]) -> None:
        """Runs in the worker's loop, in one step: nothing that is lost may start because the lease holds again."""
        self._lose(lost)
        self._lease.begin_again(until)
        self._lanes.resume()

    def _lose(self, lost: set[bytes]) -> None:
        """Runs in the worker's loop. What was lost by one delivery may have come back by another."""
        if self._lanes.lose(lost):
            self._may_have_orphans.set()

    async def _report(self, error: RedisTrouble) -> float:
        """The group is gone: report what is held. Returns how long to wait before the next look."""
        async with self._reporting:
            self._groupless.pause_after(error)
            sent_at = lease_clock()
            was_over = sent_at >= self._lease.until
            try:
                is_back = await self._recovery.report(self._broker)
            except RedisTrouble as trouble:
                return min(self._outage.pause_after(trouble), self._renew_s)
        self._outage.end()
        if is_back:
            return 0.0
        if not was_over:  # else nothing may start before it is known whose it is, and that shows when the group is back
            self._lease.renew(sent_at + self._lease_ms / 1000)
        return REGROUP_S
