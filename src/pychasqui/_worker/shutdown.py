"""Stops the parts of a worker in the order that loses nothing, strands nothing and runs nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from .._core.delivery import Delivery
from .._core.guarded_log import GuardedLogger
from ..errors import CommandTimeout, ConnectionLost, RedisTrouble
from .drain_log import (
    describe_fate_of_coroutines,
    describe_fate_of_threads,
    log_cut_off_jobs_if_any,
    log_drain_start,
    log_uncancelled_jobs_if_any,
)
from .release import RELEASED_A_CALL, list_entries_of_jobs
from .task_ends import CLEANUP_S
from .wiring import Components

log = GuardedLogger("chasqui.worker")
T = TypeVar("T")

SETTLE_S = 5.0  # how long a closing worker tries to settle what has ended while Redis is away
CLOSING_S = 2.0  # how long each other step of the shutdown may take


@dataclass(frozen=True, kw_only=True)
class Shutdown:
    """run() lets jobs finish until the deadline, or until `hurried` is set, and hands the rest back."""

    components: Components
    lease_ms: int
    deadline_s: Callable[[], float]  # asked when the lanes drain: drain() may change it until then
    hurried: asyncio.Event
    stopped_by: str  # the signal or the cancellation that stops it; "" if the program has called close()
    has_signals: bool

    async def run(self) -> None:
        parts = self.components
        parts.shared.is_closing.set()
        # Before the rest, so that nothing new comes in.
        await asyncio.gather(parts.reclaimer.end(timeout_s=CLOSING_S), parts.reader.stop_reading())
        await self._try_release_unfinished_jobs(parts.lanes.take_out_unstarted_jobs())
        await self._try_release_orphans()
        await self._drain_until_deadline_or_hurried()
        cut_off = await parts.lanes.stop(self.hurried)
        self._log_uncancelled_jobs_if_any(cut_off)
        if parts.event_writer is not None:
            await parts.event_writer.end(timeout_s=CLOSING_S)
        await parts.acker.end(timeout_s=SETTLE_S)  # after the lanes, so that all that has ended is settled
        await parts.promoter.end(timeout_s=CLOSING_S)
        await parts.scheduler.end(timeout_s=CLOSING_S)
        # What cannot be cut off (a thread, a handler that will not be cancelled) stays ours until the lease ends.
        runs_on = parts.lanes.has_uncancelled_handler or (cut_off and parts.threads is not None)
        if parts.threads is None:
            await self._try_release_unfinished_jobs(cut_off)
        # After everything that held a lease, before its name goes.
        await parts.heartbeat.stop(timeout_s=CLOSING_S)
        if not runs_on:
            await self._try_leave_group()

    async def _drain_until_deadline_or_hurried(self) -> None:
        """Lets what is held finish, until the deadline or a second signal."""
        parts, deadline_s = self.components, self.deadline_s()
        consumer, holdings = parts.shared.consumer, parts.shared.holdings
        log_drain_start(
            consumer,
            holdings.list_running_jobs(),
            stopped_by=self.stopped_by,
            deadline_s=deadline_s,
            has_signals=self.has_signals,
        )
        waits = {asyncio.ensure_future(parts.lanes.wait_until_all_ran()), asyncio.ensure_future(self.hurried.wait())}
        await asyncio.wait(waits, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
        why = "a second signal came" if self.hurried.is_set() else f"{deadline_s:g} s are over"
        fate = (
            describe_fate_of_coroutines(CLEANUP_S)
            if parts.threads is None
            else describe_fate_of_threads(self.lease_ms / 1000)
        )
        log_cut_off_jobs_if_any(consumer, holdings.list_running_jobs(), reason=why, fate=fate)

    def _log_uncancelled_jobs_if_any(self, cut_off: list[Delivery]) -> None:
        """What runs in threads is logged when the deadline is over."""
        parts = self.components
        if parts.threads is None and parts.lanes.has_uncancelled_handler:
            ended = {job.entry_id for job in cut_off}
            running = [job for job in parts.shared.holdings.list_running_jobs() if job.entry_id not in ended]
            log_uncancelled_jobs_if_any(parts.shared.consumer, running, lease_s=self.lease_ms / 1000)

    async def _try_release_orphans(self) -> None:
        """Hands back what is pending for this worker without its knowledge: the reply that brought it was lost."""
        if not self.components.broker.is_connected:
            return  # it runs again when the lease ends
        try:
            async with asyncio.timeout(CLOSING_S):
                await self.components.orphans.try_release_orphans()
        except TimeoutError:
            log.debug("worker %s leaves entries that it does not know of to others", self.components.shared.consumer)

    async def _try_release_unfinished_jobs(self, jobs: list[Delivery]) -> None:
        """Hands jobs back, so that other workers run them at once and without using up an attempt."""
        shared, entries = self.components.shared, list_entries_of_jobs(jobs)
        try:
            for start in range(0, len(entries), RELEASED_A_CALL):
                some = entries[start : start + RELEASED_A_CALL]
                await _retry_shutdown_command(self.components.releaser.release, some)
        except (RedisTrouble, TimeoutError) as error:
            log.warning("%d jobs of %s run again when its lease ends: %r", len(jobs), shared.consumer, error)
        else:
            if jobs:
                log.info("worker %s has handed back %d unfinished jobs", shared.consumer, len(jobs))

    async def _try_leave_group(self) -> None:
        shared, broker = self.components.shared, self.components.broker
        try:
            async with asyncio.timeout(CLOSING_S):
                # Read once: when the first call was executed and its answer lost, the next worker may have the name.
                lease = await _retry_shutdown_command(broker.read_lease_end_or_zero, shared.group, shared.consumer)
                await _retry_shutdown_command(broker.leave_group_if_lease_is_same, shared.group, shared.consumer, lease)
        except (RedisTrouble, TimeoutError) as error:
            log.info("worker %s leaves its name in the group: %r", shared.consumer, error)


async def _retry_shutdown_command(command: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """Retries a shutdown command for up to CLOSING_S; all of them are idempotent."""
    async with asyncio.timeout(CLOSING_S):
        while True:
            try:
                return await command(*arguments)
            except (ConnectionLost, CommandTimeout):
                await asyncio.sleep(0.05)
