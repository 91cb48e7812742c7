"""Keeps this worker's lease and its hold on entries alive, from a thread of its own.

A handler that blocks the event loop must not lose its job to another worker, so the thread has a loop and a
connection to itself. The same thread says what is held when the group is gone, and watches the worker's loop.

Renewals are sent every third of a lease whether the last was answered or not, so that a lease holds also where a round
trip takes half of it. Where it takes longer, no lease can hold: the worker says so, gives up its own and runs nothing,
so that others get the jobs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from .._core.clock import lease_clock
from .._core.delivery import Delivery
from .._core.limits import REGROUP_S
from .._redis.broker import Broker
from .._redis.error_actions import ErrorAction, action_for
from ..errors import RedisTrouble
from .group_recovery import GroupRecovery
from .loop_watch import LoopWatch
from .pause_watch import PauseWatch
from .service import Outage

log = logging.getLogger("chasqui.worker")

IDS_A_CALL = 500
LOOK_EVERY_S = 0.5  # how often the worker's loop is looked at
MOST_UNANSWERED = 4  # renewals on their way at once
# A renewal that is sent each third of a lease and answered after two thirds of it holds the lease without a gap.
LONGEST_TRIP = 0.6  # of a lease
TRIPS_A_LEASE = 3  # what is advised
MEASURED_TIMES = 3
MEASURED_FOR_S = 5.0


class Kept(Protocol):
    """What the keeper needs to know of the lanes."""

    lease_until: float

    def running(self) -> list[Delivery]: ...
    def renewed(self) -> None: ...
    def lose(self, ids: set[bytes]) -> bool: ...


class Heartbeat:
    """start() -> renews every third of a lease -> stop(). The first renewal is awaited: a worker begins alive.

    every_s    between renewals of the lease
    hold_s     between renewals of the hold on entries, which only others without a lease look at
    on_death   is told in the worker's loop what has ended the thread, if it was not stop()
    """

    def __init__(
        self,
        broker: Broker,
        group: str,
        consumer: str,
        *,
        lanes: Kept,
        recovery: GroupRecovery,
        on_lost: Callable[[], None],
        on_pause: Callable[[bool], None],
        on_death: Callable[[str, BaseException], None],
        describe: Callable[[], bytes],
        lease_ms: int,
        every_s: float,
        hold_s: float,
    ) -> None:
        self._broker = broker
        self._group = group
        self._consumer = consumer
        self._lanes = lanes
        self._recovery = recovery
        self._on_lost = on_lost
        self._on_pause = on_pause
        self._on_death = on_death
        self._describe = describe
        self._lease_ms = lease_ms
        self._every_s = every_s
        self._hold_s = hold_s
        self.trouble: str | None = None  # why there is no lease, if that is known
        self.troubled_at = float("-inf")  # when a renewal last failed, came late or followed a lapse, by lease_clock()
        self._thread: threading.Thread | None = None
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._life: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._is_stopping = False
        self._worker_loop: asyncio.AbstractEventLoop | None = None
        self._watch: LoopWatch | None = None
        self._wakes = asyncio.Event()
        self._renew_at = 0.0
        self._unanswered = 0
        self._looking: asyncio.Task[None] | None = None
        self._pauses = PauseWatch(broker, self._pause)
        self._before: dict[bytes, int] = {}
        self._hold_at = 0.0
        self._trip_s = 0.0  # how long a round trip takes
        self._is_near = False  # the last renewal has shown that a lease can be held over such trips
        self._until = 0.0  # when the last lease ends
        self._has_left = False
        self._reporting = asyncio.Lock()
        self._groupless = Outage(
            f"the group of worker {consumer} is gone and made anew once all workers have said what they hold",
            f"the group of worker {consumer} is back",
        )
        self._outage = Outage(
            f"worker {consumer} cannot renew its lease and keeps trying", f"worker {consumer} has renewed its lease"
        )

    @property
    def loop_lag_s(self) -> float:
        return 0.0 if self._watch is None else self._watch.lag_s

    async def start(self) -> None:
        self._worker_loop = asyncio.get_running_loop()
        self._watch = LoopWatch(self._consumer, in_loop=self._in_worker_loop, running=self._lanes.running)
        begun, self._ended = self._worker_loop.create_future(), self._worker_loop.create_future()
        thread = threading.Thread(target=self._live, args=(begun,), name="chasqui keeper", daemon=True)
        thread.start()
        self._thread = thread
        try:
            await begun
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends also a renewal that waits for a Redis that is away."""
        if self._thread is None or self._ended is None:
            return
        self._is_stopping = True
        if self._own_loop is not None and self._life is not None:
            with suppress(RuntimeError):  # it has ended already
                self._own_loop.call_soon_threadsafe(self._life.cancel)
        await asyncio.wait({self._ended})
        self._thread.join()
        self._thread = None

    def hurry(self) -> None:
        """Somebody has seen that the group is gone: do not wait for the next renewal. For the worker's loop."""
        if self._own_loop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._own_loop.call_soon_threadsafe(self._renew_in, 0.0)

    # The thread's life ----------------------------------------------------------------------------------------------

    def _live(self, begun: asyncio.Future[None]) -> None:
        death: BaseException | None = None
        try:
            with asyncio.Runner() as runner, suppress(asyncio.CancelledError):
                runner.run(self._keep(begun))
        except BaseException as error:  # noqa: BLE001  the thread's border: the worker hears of whatever it is
            death = error
        finally:
            self._in_worker_loop(self._see_end, begun, death)

    def _see_end(self, begun: asyncio.Future[None], death: BaseException | None) -> None:
        """Runs in the worker's loop."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        if begun.done():
            if death is not None:
                self._on_death("heartbeat", death)
        elif death is None:
            begun.set_result(None)
        else:
            begun.set_exception(death)

    async def _keep(self, begun: asyncio.Future[None]) -> None:
        self._own_loop, self._life = asyncio.get_running_loop(), asyncio.current_task()
        if self._is_stopping:  # already, before there was a life to cancel
            return
        assert self._watch is not None
        try:
            await self._begin()
            self._renew_at = self._until - self._lease_ms / 1000 + self._every_s
            async with asyncio.TaskGroup() as tasks:  # ends with the first of them that fails
                self._looking = tasks.create_task(self._look_around_and_say_so(begun))
                while True:
                    self._watch.ask()
                    await self._sleep()
                    self._watch.report()
                    if self._may_renew() and lease_clock() >= self._renew_at:
                        self._renew_at = lease_clock() + self._every_s
                        self._unanswered += 1
                        tasks.create_task(self._renew_and_look_around(tasks))
        finally:
            await self._broker.connection.close()

    async def _sleep(self) -> None:
        """Until it is time for a renewal or for a look at the worker's loop."""
        left_s = self._renew_at - lease_clock() if self._may_renew() else LOOK_EVERY_S
        with suppress(TimeoutError):
            async with asyncio.timeout(min(LOOK_EVERY_S, max(left_s, 0.0))):
                await self._wakes.wait()
        self._wakes.clear()

    def _may_renew(self) -> bool:
        """One at a time while the group is gone; else also while earlier ones are on their way."""
        return self._unanswered < (1 if self._groupless.is_on else MOST_UNANSWERED)

    def _renew_in(self, seconds: float) -> None:
        self._renew_at = min(self._renew_at, lease_clock() + seconds)
        self._wakes.set()

    async def _begin(self) -> None:
        """Until the first lease holds. What trying again would not mend is raised."""
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
        if wait_s < self._every_s:
            self._renew_in(wait_s)
        elif self._looking is None or self._looking.done():
            self._looking = tasks.create_task(self._look_around())

    # Renewing -------------------------------------------------------------------------------------------------------

    async def _renew(self, *, is_first: bool = False) -> float:
        """Renew the lease, and from time to time the hold on entries. Returns how long to wait before the next."""
        was_over = lease_clock() >= self._lanes.lease_until
        if was_over and not is_first:
            self.troubled_at = lease_clock()
        try:
            if was_over and not (self._is_near or await self._can_hold_a_lease()):
                return self._every_s
            entries, sent_at = self._entries_to_renew(was_over), lease_clock()
            lost = await self._keep_all(entries)
        except RedisTrouble as error:
            self._is_near = False
            action = action_for(error)
            if action is ErrorAction.NO_GROUP:
                return await self._report(error)
            if is_first and action in (ErrorAction.FATAL, ErrorAction.REAUTHENTICATE):
                raise
            self.troubled_at = lease_clock()
            return min(self._outage.goes_on(error), self._every_s)
        self._measured(lease_clock() - sent_at)
        return self._is_renewed(sent_at, lost, was_over=was_over)

    def _entries_to_renew(self, was_over: bool) -> list[tuple[bytes, int]]:
        """After a lapse all: whatever is held may be somebody else's by now. Else, when it is time, what was held the
        last time already: the rest is fresh by itself."""
        now = lease_clock()
        if not was_over and now < self._hold_at - self._every_s / 2:
            return []
        held, before = self._recovery.held(), self._before
        self._before, self._hold_at = held, now + self._hold_s
        return list(held.items() if was_over else held.items() & before.items())

    async def _keep_all(self, entries: list[tuple[bytes, int]]) -> set[bytes]:
        """Returns those that are lost."""
        batches = [entries[start : start + IDS_A_CALL] for start in range(0, max(len(entries), 1), IDS_A_CALL)]
        me = (self._group, self._consumer, self._lease_ms)
        lost = await asyncio.gather(*(self._broker.renew_lease(*me, batch) for batch in batches))
        return {entry_id for some in lost for entry_id in some}

    def _is_renewed(self, sent_at: float, lost: set[bytes], *, was_over: bool) -> float:
        self._outage.is_over()
        self._has_left = False
        if self._groupless.is_on:
            self._groupless.is_over()
            self._in_worker_loop(self._on_lost)  # what was handed back after the last report is ours by that report
        until, now = sent_at + self._lease_ms / 1000, lease_clock()
        if now >= (until if was_over else self._lanes.lease_until):
            return 0.0  # too late to be of use; what is held must be looked at once more if it was over only meanwhile
        self._until = until
        if was_over:
            self._in_worker_loop(self._begin_again, until, lost)
        else:
            self._lanes.lease_until = until
            if lost:
                self._in_worker_loop(self._lose, lost)
        return self._every_s

    def _begin_again(self, until: float, lost: set[bytes]) -> None:
        """Runs in the worker's loop, in one step: nothing that is lost may start because the lease holds again."""
        self._lose(lost)
        self._lanes.lease_until = until
        self._lanes.renewed()

    def _lose(self, lost: set[bytes]) -> None:
        """Runs in the worker's loop. What was lost by one delivery may have come back by another."""
        if self._lanes.lose(lost):
            self._on_lost()

    async def _report(self, error: RedisTrouble) -> float:
        """The group is gone: say what is held. Returns how long to wait before the next look."""
        async with self._reporting:
            self._groupless.goes_on(error)
            sent_at = lease_clock()
            was_over = sent_at >= self._lanes.lease_until
            try:
                is_back = await self._recovery.report(self._broker)
            except RedisTrouble as trouble:
                return min(self._outage.goes_on(trouble), self._every_s)
        self._outage.is_over()
        if is_back:
            return 0.0
        if not was_over:  # else nothing may start before it is known whose it is, and that shows when the group is back
            self._lanes.lease_until = sent_at + self._lease_ms / 1000
        return REGROUP_S

    # Round trips ----------------------------------------------------------------------------------------------------

    async def _can_hold_a_lease(self) -> bool:
        """Measured before a lease is begun. If not, one is kept at Redis only for what still runs here."""
        longest_s = LONGEST_TRIP * self._lease_ms / 1000
        trip_s = await self._measure(longest_s)
        if trip_s <= longest_s:
            if self.trouble is not None:
                log.info("worker %s can hold its lease again", self._consumer)
            self.trouble = None
            return True
        if self.trouble is None:
            log.error(
                "a round trip to Redis takes worker %s %.0f ms, so that no lease of %d ms can be held, and it runs "
                "nothing: set lease_ms to at least %.0f",
                self._consumer,
                1000 * trip_s,
                self._lease_ms,
                1000 * TRIPS_A_LEASE * trip_s,
            )
        self.trouble = f"a round trip to Redis takes {1000 * trip_s:.0f} ms, lease_ms is {self._lease_ms}"
        if held := list(self._recovery.held().items()):
            await self._keep_all(held)
        elif not self._has_left:  # what was read here and not started goes to others at once
            self._has_left = True
            await self._broker.leave_group(self._group, self._consumer)
        return False

    async def _measure(self, longest_s: float) -> float:
        """The best of a few; the first may have to open the connection."""
        self._broker.connection.timeout_s = max(MEASURED_FOR_S, self._lease_ms / 1000)
        best = float("inf")
        for _ in range(MEASURED_TIMES):
            sent_at = lease_clock()
            await self._broker.now_ms()
            best = min(best, lease_clock() - sent_at)
            if best <= longest_s:
                break
        return best

    def _measured(self, trip_s: float) -> None:
        """A line that has gone dead without a word must not cost the lease: it is given up in time for another one, but
        not before an answer can have come."""
        self._trip_s = max(trip_s, 0.7 * self._trip_s)
        lease_s = self._lease_ms / 1000
        self._is_near = trip_s <= LONGEST_TRIP * lease_s
        if not self._is_near:
            self.troubled_at = lease_clock()
        self._broker.connection.timeout_s = min(max(lease_s / 3, 4 * self._trip_s), 2 * lease_s / 3)

    # Beside it ------------------------------------------------------------------------------------------------------

    async def _look_around_and_say_so(self, begun: asyncio.Future[None]) -> None:
        """A worker begins with a lease, and knows whether the queue is paused."""
        await self._look_around()
        self._in_worker_loop(_settle_quietly, begun)

    async def _look_around(self) -> None:
        """Say how this worker is, and see whether the queue is paused; it is told of that, too."""
        with suppress(RedisTrouble):  # it can wait: the lease could not
            await self._broker.subscribe_to_pause(self._pauses.hear)
            self._pause(await self._broker.is_paused())
            kept_ms = 2 * self._lease_ms
            await self._broker.write_worker_record(self._consumer, self._describe(), kept_ms)  # may find no memory

    def _pause(self, is_paused: bool) -> None:
        self._in_worker_loop(self._on_pause, is_paused)

    def _in_worker_loop(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._worker_loop is not None
        with suppress(RuntimeError):  # the worker's loop has ended; the thread is about to
            self._worker_loop.call_soon_threadsafe(function, *arguments)


def _settle_quietly(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
