"""Renews the worker's lease at regular times, from a thread of its own.

A handler that blocks the event loop must not lose its job to another worker, so the thread has a loop and a connection
to itself. Renewals are sent every third of a lease whether the last was answered or not, so that a lease holds also
where a round trip takes half of it. Once a day it writes the queue into the registry of queues.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from .._core.clock import lease_clock
from .._redis.broker import Broker
from ..errors import RedisTrouble
from .lease_renewal import LeaseRenewal
from .loop_thread import LoopThread
from .loop_watch import LoopWatch
from .queue_watch import QueueWatch
from .registry_writer import RegistryWriter
from .shared import Shared

TICK_S = 0.5  # lease_clock() goes on while the machine sleeps, and a timer does not; the loop watch looks as often
MAX_UNANSWERED_RENEWALS = 4  # renewals on their way at once


class Heartbeat:
    """start() -> renews every third of a lease -> stop().

    start() awaits the first renewal. A worker whose loop is closed without its end cannot settle anything any more: the
    heartbeat then ends by itself, so that others get the jobs when the lease ends.
    """

    def __init__(
        self,
        broker: Broker,
        shared: Shared,
        renewal: LeaseRenewal,
        *,
        thread: LoopThread,
        loop_watch: LoopWatch,
        queue_watch: QueueWatch,
        registry_writer: RegistryWriter,
    ) -> None:
        self._broker = broker  # the thread's own, which ends with it
        self._renewal = renewal
        self._thread = thread
        self._loop_watch = loop_watch
        self._queue_watch = queue_watch
        self._registry_writer = registry_writer
        self._sleeper: asyncio.Future[None] | None = None
        self._renew_at = 0.0
        self._unanswered = 0
        self._is_ending = False
        self._registering: asyncio.Task[None] | None = None
        shared.group_gone.add_listener(self._request_renewal_now)

    async def start(self) -> None:
        await self._thread.start_and_wait_until_begun(self._renew_until_stopped)

    async def stop(self, *, timeout_s: float = 0.0) -> None:
        """Sends no more, and waits that long for what Redis has not answered; then ends what still waits.

        A renewal that reaches Redis after the worker has left the group brings its name back.
        """
        self._thread.call_soon_in_thread_if_running(self._stop_renewing)
        await self._thread.end_thread(cancel_after_s=timeout_s)

    def _request_renewal_now(self) -> None:
        """Runs in the worker's loop. The group is gone: the next renewal, which finds that, is sent now."""
        self._thread.call_soon_in_thread_if_running(self._schedule_renewal_within, 0.0)

    # The thread's loop ----------------------------------------------------------------------------------------------

    async def _renew_until_stopped(self) -> None:
        try:
            self._renew_at = await self._renewal.acquire_first_lease_and_choose_renew_at()
            async with asyncio.TaskGroup() as tasks:  # ends with the first of them that fails
                self._registering = tasks.create_task(self._report_begun_after_check_and_register())
                while not (self._is_ending or self._thread.is_worker_loop_closed):
                    if self._can_send_another_renewal() and lease_clock() >= self._renew_at:
                        self._renew_at = lease_clock() + self._renewal.every_s
                        self._unanswered += 1
                        tasks.create_task(self._renew_lease_and_schedule_next(tasks))
                    self._loop_watch.log_if_blocked_and_measure_if_due()
                    await self._sleep_until_renewal_or_tick()
        finally:
            await self._broker.close()

    def _stop_renewing(self) -> None:
        self._is_ending = True
        self._wake()

    async def _sleep_until_renewal_or_tick(self) -> None:
        """Sleeps for at most a tick. One timer serves renewals and the loop watch: each wake-up of a thread costs."""
        left_s = self._renew_at - lease_clock() if self._can_send_another_renewal() else TICK_S
        loop = asyncio.get_running_loop()
        self._sleeper = loop.create_future()
        timer = loop.call_later(min(TICK_S, max(left_s, 0.0)), self._wake)
        await self._sleeper
        timer.cancel()

    def _wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def _can_send_another_renewal(self) -> bool:
        """While the group is gone, renewals are sent one at a time; else also while earlier ones are on their way."""
        return self._unanswered < (1 if self._renewal.is_group_missing else MAX_UNANSWERED_RENEWALS)

    def _schedule_renewal_within(self, seconds: float) -> None:
        self._renew_at = min(self._renew_at, lease_clock() + seconds)
        self._wake()

    async def _renew_lease_and_schedule_next(self, tasks: asyncio.TaskGroup) -> None:
        try:
            wait_s = await self._renewal.try_renew_and_choose_pause_s()
        finally:
            self._unanswered -= 1
            self._wake()
        if wait_s < self._renewal.every_s:
            self._schedule_renewal_within(wait_s)
        elif not self._is_ending and (self._registering is None or self._registering.done()):
            self._registering = tasks.create_task(self._try_to_register_queue_if_due())

    async def _report_begun_after_check_and_register(self) -> None:
        """A worker starts with a lease, and knows whether the queue is paused and which of its jobs are cancelled."""
        await self._queue_watch.wait_for_running_check()
        self._thread.report_begun()
        await self._try_to_register_queue_if_due()

    async def _try_to_register_queue_if_due(self) -> None:
        with suppress(RedisTrouble):  # after the next renewal, then
            await self._registry_writer.register_queue_if_due()
