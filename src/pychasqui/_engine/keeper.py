"""Keeps this worker's lease and its hold on entries alive, from a thread of its own.

A handler that blocks the event loop must not lose its job to another worker, so the thread has a loop and a
connection to itself. The same thread says what is held when the group is gone, and notices that the worker's loop is
blocked, and by whom.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Protocol

from .._redis.broker import Broker
from .._redis.remedies import Remedy, remedy_for
from ..config import REGROUP_S
from ..errors import RedisTrouble
from .delivery import Delivery
from .pause_watch import PauseWatch
from .roll import Roll
from .service import Outage

log = logging.getLogger("chasqui.worker")

IDS_A_CALL = 500
LOOK_EVERY_S = 0.5  # how often the worker's loop is looked at
BLOCKED_S = 1.5  # a loop that has not turned for this long is reported


class Kept(Protocol):
    """What the keeper needs to know of the lanes."""

    lease_until: float

    def running(self) -> list[Delivery]: ...
    def renewed(self) -> None: ...
    def lose(self, ids: set[bytes]) -> bool: ...


class Keeper:
    """start() -> renews every third of a lease -> stop(). The first renewal is awaited: a worker begins alive."""

    def __init__(
        self,
        broker: Broker,
        group: str,
        consumer: str,
        *,
        lanes: Kept,
        roll: Roll,
        on_lost: Callable[[], None],
        on_pause: Callable[[bool], None],
        describe: Callable[[], bytes],
        lease_ms: int,
        every_s: float,
    ) -> None:
        self._broker = broker
        self._group = group
        self._consumer = consumer
        self._lanes = lanes
        self._roll = roll
        self._on_lost = on_lost
        self._on_pause = on_pause
        self._describe = describe
        self._lease_ms = lease_ms
        self._every_s = every_s
        self._thread: threading.Thread | None = None
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._life: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._is_stopping = False
        self._worker_loop: asyncio.AbstractEventLoop | None = None
        self._worker_thread = 0
        self._asked_at: float | None = None  # when the worker's loop was last asked for a sign of life, if it owes one
        self._is_blocked = False
        self.loop_lag_s = 0.0  # how long the worker's loop took for its last sign of life
        self._pauses = PauseWatch(broker, self._pause)
        self._hurried = asyncio.Event()
        self._before: dict[bytes, int] = {}
        self._groupless = Outage(
            f"the group of worker {consumer} is gone and made anew once all workers have said what they hold",
            f"the group of worker {consumer} is back",
        )
        self._outage = Outage(
            f"worker {consumer} cannot renew its lease and keeps trying", f"worker {consumer} has renewed its lease"
        )

    async def start(self) -> None:
        self._worker_loop = asyncio.get_running_loop()
        self._worker_thread = threading.get_ident()
        begun, self._ended = self._worker_loop.create_future(), self._worker_loop.create_future()
        self._thread = threading.Thread(target=self._live, args=(begun,), name="chasqui keeper", daemon=True)
        self._thread.start()
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
                self._own_loop.call_soon_threadsafe(self._hurried.set)

    def _live(self, begun: asyncio.Future[None]) -> None:
        """The thread's life."""
        try:
            with asyncio.Runner() as runner, suppress(asyncio.CancelledError):
                runner.run(self._keep(begun))
        finally:
            for future in (begun, self._ended):
                self._in_worker_loop(_settle_quietly, future)

    async def _keep(self, begun: asyncio.Future[None]) -> None:
        self._own_loop, self._life = asyncio.get_running_loop(), asyncio.current_task()
        if self._is_stopping:  # already, before there was a life to cancel
            return
        try:
            renew_at = monotonic() + await self._renew()
            self._in_worker_loop(_settle_quietly, begun)
            while True:
                self._ask_loop()
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(LOOK_EVERY_S, max(0.0, renew_at - monotonic()))):
                        await self._hurried.wait()
                self._report_blocked_loop()
                if monotonic() >= renew_at or self._hurried.is_set():
                    self._hurried.clear()
                    renew_at = monotonic() + await self._renew()
        finally:
            await self._broker.connection.close()

    async def _renew(self) -> float:
        """Renew the lease, and the hold on what was already held the last time: the rest is fresh by itself.

        Returns how long to wait before the next renewal.
        """
        held = self._roll.held()
        was_over = monotonic() >= self._lanes.lease_until
        # After a lapse nothing is fresh: whatever is held may be somebody else's by now.
        to_renew = list(held.items() if was_over else held.items() & self._before.items())
        self._before = held
        lost: set[bytes] = set()
        sent_at = monotonic()
        try:
            for start in range(0, max(len(to_renew), 1), IDS_A_CALL):
                batch = to_renew[start : start + IDS_A_CALL]
                lost.update(await self._broker.keep(self._group, self._consumer, self._lease_ms, batch))
        except RedisTrouble as error:
            if remedy_for(error) is Remedy.NO_GROUP:
                return await self._report(error)
            return min(self._outage.goes_on(error), self._every_s)
        self._outage.is_over()
        if self._groupless.is_on:
            self._groupless.is_over()
            self._in_worker_loop(self._on_lost)  # what was handed back after the last report is ours by that report
        until = sent_at + self._lease_ms / 1000
        if was_over:
            self._in_worker_loop(self._begin_again, until, lost)
        else:
            self._lanes.lease_until = until
            if lost:
                self._in_worker_loop(self._lose, lost)
        with suppress(RedisTrouble):  # it can wait: the lease could not
            await self._look_around()
        return self._every_s

    async def _report(self, error: RedisTrouble) -> float:
        """The group is gone: say what is held. Returns how long to wait before the next look."""
        self._groupless.goes_on(error)
        sent_at = monotonic()
        was_over = sent_at >= self._lanes.lease_until
        try:
            is_back = await self._roll.report(self._broker)
        except RedisTrouble as trouble:
            return min(self._outage.goes_on(trouble), self._every_s)
        self._outage.is_over()
        if is_back:
            return 0.0
        if not was_over:  # else nothing may start before it is known whose it is, and that shows when the group is back
            self._lanes.lease_until = sent_at + self._lease_ms / 1000
        return REGROUP_S

    async def _look_around(self) -> None:
        """Say how this worker is, and see whether the queue is paused; it is told of that, too."""
        await self._broker.hear_of_pause(self._pauses.hear)
        self._pause(await self._broker.is_paused())
        await self._broker.tell_of_worker(self._consumer, self._describe(), 2 * self._lease_ms)  # may find no memory

    def _pause(self, is_paused: bool) -> None:
        self._in_worker_loop(self._on_pause, is_paused)

    def _begin_again(self, until: float, lost: set[bytes]) -> None:
        """Runs in the worker's loop, in one step: nothing that is lost may start because the lease holds again."""
        self._lose(lost)
        self._lanes.lease_until = until
        self._lanes.renewed()

    def _lose(self, lost: set[bytes]) -> None:
        """Runs in the worker's loop. What was lost by one delivery may have come back by another."""
        if self._lanes.lose(lost):
            self._on_lost()

    def _in_worker_loop(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._worker_loop is not None
        with suppress(RuntimeError):  # the worker's loop has ended; the thread is about to
            self._worker_loop.call_soon_threadsafe(function, *arguments)

    def _ask_loop(self) -> None:
        if self._asked_at is None:
            self._asked_at = monotonic()
            self._in_worker_loop(self._hear_loop)

    def _hear_loop(self) -> None:
        """Runs in the worker's loop: it turns."""
        if self._asked_at is not None:
            self.loop_lag_s = monotonic() - self._asked_at
        if self._is_blocked:
            log.warning("the event loop of worker %s turns again after %.1f s", self._consumer, self.loop_lag_s)
        self._is_blocked, self._asked_at = False, None

    def _report_blocked_loop(self) -> None:
        """Once a blockage: for how long, which jobs may be to blame, and where the loop's thread stands."""
        asked_at = self._asked_at
        silent_s = 0.0 if asked_at is None else monotonic() - asked_at
        if silent_s < BLOCKED_S or self._is_blocked:
            return
        self._is_blocked = True
        frame = sys._current_frames().get(self._worker_thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(no stack)\n"
        names = sorted({job.name for job in self._lanes.running()})
        log.error(
            "the event loop of worker %s has been blocked for %.1f s by a handler that does not await (running: %s); "
            "its leases are kept. It stands at:\n%s",
            self._consumer,
            silent_s,
            ", ".join(map(repr, names[:10])) or "none",
            stack,
        )


def _settle_quietly(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
