"""Reads batches of entries for as long as there is room for them, and hands them to the intake.

Entries that are pending already go before new ones. Nothing is read while the queue is paused or the lease is over. The
reader survives any trouble with Redis; only stop_reading() ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from .._core.guarded_log import GuardedLogger
from .._core.limits import INTAKE_SLICE, READ_BATCH, REGROUP_S
from .._redis.broker import Broker
from .._redis.error_actions import ErrorAction, action_for
from .._redis.reading import ReadInFlight, ReadRequest
from .._redis.replies import ClaimedEntry, Entry
from .._redis.socket import ReplyTooLarge
from ..errors import CommandTimeout, ConnectionLost, RedisTrouble
from .intake import Intake
from .outage import Outage
from .pending_entries import PendingEntries
from .prefetch import Prefetch, PrefetchRoom
from .read_turns import ReadTurns
from .release import Releaser
from .service import Service
from .shared import Shared

log = GuardedLogger("chasqui.worker")

UNBLOCK_EVERY_S = 0.05
UNBLOCK_FOR_S = 2.0
IDLE_S = 0.02  # after a longer wait with free lanes, the measured pace says nothing any more
STALE_S = 0.5  # jobs that wait here for this long while the lanes take none are better off elsewhere
LEASE_AWAITED_S = 1.0  # after an outage the heartbeat may take that much longer to reach Redis again


class ReadLimits(NamedTuple):
    block_ms: int  # how long a read waits for entries
    max_reply_bytes: int  # a larger reply is given up


class Reader(Service):
    """start() -> reads for ever -> stop_reading() ends the read that is under way and keeps what it brought."""

    title = "reader"

    def __init__(
        self,
        broker: Broker,
        shared: Shared,
        limits: ReadLimits,
        *,
        helper: Broker,
        intake: Intake,
        prefetch: Prefetch,
        pending: PendingEntries,
        releaser: Releaser,
    ) -> None:
        super().__init__(shared.on_death)
        self._broker = broker
        self._helper = helper  # not held up by a blocked read
        self._group, self._consumer = shared.group, shared.consumer
        self._lease, self._group_gone = shared.lease, shared.group_gone
        self._is_paused, self._may_have_orphans = shared.is_paused, shared.may_have_orphans
        self._drained, self._batch_sizes = shared.drained, shared.batch_sizes
        self._intake = intake
        self._prefetch = prefetch
        self._pending = pending
        self._releaser = releaser
        self._max_reply_bytes = limits.max_reply_bytes
        self._turns = ReadTurns(
            shared.living_workers, helper, self._group, limits.block_ms, on_backlog=self.wake_if_asleep
        )
        self._awaits_settling = False
        self._unblocking: asyncio.Task[None] | None = None
        self._outage = Outage(
            f"worker {self._consumer} cannot read and keeps trying", f"worker {self._consumer} reads again"
        )
        shared.room.add_listener(self.wake_if_asleep)
        shared.settled.add_listener(self._wake_if_awaiting_settling)

    # Stopping and pausing -------------------------------------------------------------------------------------------

    async def stop_reading(self) -> None:
        """Has the server end a blocked read, so that no entry is delivered to a worker that is gone."""
        self._is_stopping = True
        self.wake_if_asleep()
        if self._task is None:
            return
        give_up_at = monotonic() + UNBLOCK_FOR_S
        while not self._task.done() and monotonic() < give_up_at:
            try:
                async with asyncio.timeout(UNBLOCK_FOR_S):
                    await self._unblock_read_or_drop_connection()
            except (RedisTrouble, TimeoutError):
                break
            await asyncio.wait({self._task}, timeout=UNBLOCK_EVERY_S)
        await self.end(timeout_s=0)

    def pause_or_resume_reading(self, is_paused: bool) -> None:
        """Stops reading while the queue is paused, and ends a read that waits for entries."""
        if is_paused == self._is_paused.is_set:
            return
        if is_paused:
            self._is_paused.set()
            self._unblocking = asyncio.ensure_future(self._unblock_read_while_paused())
        else:
            self._is_paused.clear()
        log.info("the queue is %s for worker %s", "paused" if is_paused else "resumed", self._consumer)
        self.wake_if_asleep()

    async def _unblock_read_while_paused(self) -> None:
        """Unblocks more than once, because a read may reach the server after the first CLIENT UNBLOCK."""
        give_up_at = monotonic() + UNBLOCK_FOR_S
        while self._is_paused.is_set and self._intake.is_expecting and monotonic() < give_up_at:
            with suppress(RedisTrouble):  # the read ends by itself
                await self._unblock_read_or_drop_connection()
            await asyncio.sleep(UNBLOCK_EVERY_S)

    async def _unblock_read_or_drop_connection(self) -> None:
        client_id = self._broker.client_id
        address = self._broker.server_address
        if client_id is not None and not await self._helper.try_to_unblock_read(client_id, address):
            self._broker.drop_connection("the read that waits cannot be ended in another way")

    async def _release_unstarted_and_wait_while_paused(self) -> None:
        """Hands unstarted jobs back, and waits until the queue is resumed."""
        await self._releaser.try_release_unstarted_jobs()
        while self._is_paused.is_set and not self._is_stopping:
            await self._sleep_until_woken()

    async def _wait_for_lease_and_release_if_long(self) -> None:
        """Waits until the lease holds again. If that takes long, hands back what was read, for others to run."""
        hand_back_at = monotonic() + LEASE_AWAITED_S
        while self._lease.is_over and not self._is_stopping:
            if monotonic() >= hand_back_at:
                hand_back_at = float("inf")
                await self._releaser.try_release_unstarted_jobs()
                await self._pending.try_release_orphans()
            await self._sleep_until_woken(REGROUP_S)

    # Reading --------------------------------------------------------------------------------------------------------

    async def _run_until_stopped(self) -> None:
        has_backlog = False  # by the last read, more entries may be left
        was_empty = True
        while not self._is_stopping:
            room = await self._release_stale_until_room_or_interruption()
            if self._is_stopping:
                return
            if self._lease.is_over:
                await self._wait_for_lease_and_release_if_long()
                continue
            if self._is_paused.is_set:
                await self._release_unstarted_and_wait_while_paused()
                continue
            # A read that waits must not ask for what an earlier pace allowed: what comes then may be slow. That holds
            # also while all lanes are busy: it may wait for longer than they are.
            count = room.entries if has_backlog else min(room.entries, max(1, room.free_lanes))
            try:
                if self._pending.may_exist and await self._pending.adopt_orphans_or_claim_entries(count):
                    continue
                had_backlog = has_backlog
                block_ms = None if had_backlog else self._turns.choose_block_ms()
                is_poll_of_empty_queue = block_ms is None and not had_backlog
                came, has_backlog = await self._read_batches_into_intake(
                    count, block_ms, is_poll_of_empty_queue=is_poll_of_empty_queue
                )
            except RedisTrouble as error:
                await self._react_to_error_and_pause(error)
                continue
            if came:
                was_empty = False
                if has_backlog and not had_backlog and self._turns.must_be_taken:
                    await self._turns.publish_backlog_if_any_and_due()
                continue
            if not was_empty:
                was_empty = True
                self._drained.send()
            if pause_s := await self._turns.draw_turn_or_choose_pause_s():
                await self._sleep_until_woken(pause_s)

    async def _release_stale_until_room_or_interruption(self) -> PrefetchRoom:
        """Returns once there is room for entries, or something else is to be done."""
        while True:
            room = self._prefetch.measure_room_and_set_low_water()
            self._awaits_settling = room.awaits_settling
            if room.is_open or self._is_stopping or self._is_paused.is_set or self._lease.is_over:
                return room
            slept_from = monotonic()
            await self._sleep_until_woken(STALE_S)
            if monotonic() - slept_from >= STALE_S and not self._is_stopping:
                await self._try_release_surplus_jobs()

    def _wake_if_awaiting_settling(self) -> None:
        if self._awaits_settling:
            self.wake_if_asleep()

    async def _try_release_surplus_jobs(self) -> None:
        """Hands back jobs that wait here for too long because the handler has become slower."""
        await self._releaser.try_release_unstarted_jobs(
            kept_count=self._prefetch.measure_and_choose_max_unstarted_to_keep()
        )

    async def _read_batches_into_intake(
        self, count: int, block_ms: int | None, *, is_poll_of_empty_queue: bool
    ) -> tuple[int, bool]:
        """Reads once, and again for as long as each read is full and there is room for another.

        A look at a queue that was empty brings few of large entries; the next read brings as many as fit in.

        Returns how many entries came, and whether more may be left: the last read brought all that it asked for, or as
        many as the bytes allowed.
        """
        asked_at, was_idle, came = monotonic(), self._prefetch.has_free_lane, 0
        waits = block_ms is not None
        with self._intake.guarding_against_stale_entries():
            if self._prefetch.may_exceed_bytes_left(count):
                if not is_poll_of_empty_queue:
                    if claimed := await self._read_by_bytes_into_intake(count):
                        return len(claimed), True
                    if block_ms is None:
                        return 0, False
                count = min(count, self._prefetch.count_that_fits_but_at_least_one())
            reading = await self._send_read(count, block_ms)
            while True:
                entries = await reading
                self._outage.end()
                was_idle = was_idle or (waits and self._prefetch.had_free_lane_before(len(entries)))
                if was_idle and not came and monotonic() - asked_at > IDLE_S:
                    self._prefetch.forget_pace()
                came += len(entries)
                self._prefetch.record_entry_sizes(len(entries), reading.reply_bytes)
                if is_full := len(entries) == count:
                    self._batch_sizes.request_client_count_if_due(self._helper, count)
                if reading.was_small:  # the intake has them already
                    return came, is_full
                count = self._count_to_read_next(len(entries)) if is_full else 0
                if count:  # hot: the server fetches the next batch while this one is decoded and run
                    reading = await self._send_read(count, None)
                await self._take_in_entries_in_slices(entries)
                if not count:
                    return came, is_full

    def _send_read(self, count: int, block_ms: int | None) -> Awaitable[ReadInFlight]:
        small = min(max(count, self._batch_sizes.min_entries_worth_reading), READ_BATCH)
        # hot: the intake takes a small batch as soon as its reply is read; a job that is alone waits for nothing else
        request = ReadRequest(
            count, block_ms, self._max_reply_bytes, self._intake.take_in_new_unless_stale_and_start_lone_job, small
        )
        return self._broker.send_read(self._group, self._consumer, request)

    async def _take_in_entries_in_slices(self, entries: list[Entry]) -> None:
        """Has entries decoded and run; lets the event loop turn after every INTAKE_SLICE of them."""
        for start in range(0, len(entries), INTAKE_SLICE):
            if start:
                await asyncio.sleep(0)
            self._intake.take_in_new_unless_stale_and_wake(entries[start : start + INTAKE_SLICE])

    async def _read_by_bytes_into_intake(self, count: int) -> list[ClaimedEntry]:
        """Reads by a script as many entries as fit into the bytes that are left, without waiting: for large entries."""
        claimed = await self._broker.read_now_within_bounds(
            self._group, self._consumer, count, self._prefetch.choose_byte_bounds()
        )
        self._outage.end()
        self._intake.take_in_claimed_unless_stale_and_wake(claimed)
        await asyncio.sleep(0)  # the lanes start some of them first, which leaves room
        return claimed

    def _count_to_read_next(self, coming: int) -> int:
        """Returns how many entries to ask for behind those that have just come; 0 if there is something to do first."""
        if (
            self._is_stopping
            or self._is_paused.is_set
            or self._intake.has_adopted_while_expecting
            or self._pending.may_exist
        ):
            return 0
        if not self._broker.is_connected:
            return 0
        return self._prefetch.count_to_read_next(coming)

    async def _react_to_error_and_pause(self, error: RedisTrouble) -> None:
        """Waits, or does what the error asks for; the loop then reads again."""
        if action_for(error) is ErrorAction.NO_GROUP:  # the heartbeat logs it
            self._group_gone.send()
            await asyncio.sleep(REGROUP_S)
            return
        if isinstance(error, ReplyTooLarge):
            log.info(
                "worker %s reads fewer at a time, because jobs are larger than expected: %s", self._consumer, error
            )
            self._prefetch.assume_large_entries()
        pause_s = self._outage.record_error_and_choose_pause_s(error)
        if isinstance(error, (ConnectionLost, CommandTimeout)):
            self._may_have_orphans.set()
        if not self._is_stopping:
            await asyncio.sleep(pause_s)
