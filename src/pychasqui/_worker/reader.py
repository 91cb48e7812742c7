"""Reads batches of entries, has them decoded and offers them to the lanes.

It asks for no more than the lanes will start within about 100 ms: a fast handler is never short of work, and a slow
one leaves the rest of the queue to other workers. Whatever happens to Redis, it goes on; only stop() ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Protocol

from .._core.defaults import READ_COUNT
from .._core.delivery import Delivery
from .._core.limits import REGROUP_S
from .._core.prefetch import PrefetchEstimate
from .._redis.broker import Broker
from .._redis.error_actions import ErrorAction, action_for
from .._redis.replies import Bounds, Claimed, Entry
from .._redis.socket import ReplyTooLarge
from ..errors import CommandTimeout, ConnectionLost, RedisTrouble
from .group_recovery import GroupRecovery
from .intake import Decodes, Intake, Room
from .service import Outage

log = logging.getLogger("chasqui.worker")

UNBLOCK_EVERY_S = 0.05
UNBLOCK_FOR_S = 2.0
IDLE_S = 0.02  # a read that waits for longer, beside free lanes, ends what was known of the pace
STALE_S = 0.5  # jobs that wait here while the lanes take none for so long are better off elsewhere
SHED_A_CALL = 500
LEASE_AWAITED_S = 1.0  # after an outage the keeper may be that much longer on its way back to Redis
MAX_UNSETTLED = 3000  # where Redis is slower than the handlers: what has ended and is not settled must not pile up
FEWEST_REPLY_BYTES = 4 * 1024 * 1024  # a smaller reply is never given up
WORTH_READING = 500  # while other entries are still to be run: smaller batches cost trips and gain nothing


class Claims(Protocol):
    """Where entries come from that others have left behind: they go before new ones."""

    @property
    def has_work(self) -> bool: ...
    async def claim(self, count: int, bounds: Bounds) -> list[Claimed]: ...


class Reader(Intake):
    """start() -> reads for ever -> stop_reading() ends the read that is under way and keeps what it brought."""

    title = "reader"

    def __init__(
        self,
        broker: Broker,
        group: str,
        consumer: str,
        *,
        lanes: Room,
        read_count: int,
        block_ms: int,
        decoder: Decodes,
        recovery: GroupRecovery,
        on_group_gone: Callable[[], None],
        max_bytes: int,
        max_entry_bytes: int,
        helper: Broker | None = None,
    ) -> None:
        super().__init__(
            helper or broker,
            group,
            consumer,
            lanes=lanes,
            decoder=decoder,
            recovery=recovery,
            max_bytes=max_bytes,
            max_entry_bytes=max_entry_bytes,
        )
        self._broker = broker
        self._read_count = min(read_count, READ_COUNT)
        self._block_ms = block_ms
        self._on_group_gone = on_group_gone
        self._max_reply_bytes = max(2 * max_bytes, FEWEST_REPLY_BYTES)  # twice what was expected
        self.claims: Claims | None = None
        self.on_drained: Callable[[], None] | None = None
        self._awaits_settling = False
        self._estimate = PrefetchEstimate(monotonic())
        self._is_paused = False
        self._unblocking: asyncio.Task[None] | None = None
        self._outage = Outage(f"worker {consumer} cannot read and keeps trying", f"worker {consumer} reads again")

    async def stop_reading(self, helper: Broker) -> None:
        """Have the server end a blocked read through `helper`, so that no entry is handed to nobody."""
        self._is_stopping = True
        self.wake()
        if self._task is None:
            return
        give_up_at = monotonic() + UNBLOCK_FOR_S
        while not self._task.done() and monotonic() < give_up_at:
            socket = self._broker.connection.live_socket()
            try:
                async with asyncio.timeout(UNBLOCK_FOR_S):
                    if socket is not None and socket.dialect is not None:
                        await helper.unblock(socket.dialect.client_id)
            except (RedisTrouble, TimeoutError):
                break
            await asyncio.wait({self._task}, timeout=UNBLOCK_EVERY_S)
        await self.end(patience_s=0)

    def pause(self, is_paused: bool) -> None:
        """Read nothing more while the queue is paused; a read that waits for entries ends now."""
        if is_paused == self._is_paused:
            return
        self._is_paused = is_paused
        log.info("the queue is %s for worker %s", "paused" if is_paused else "resumed", self._consumer)
        self.wake()
        if is_paused:
            self._unblocking = asyncio.ensure_future(self._unblock())

    async def _unblock(self) -> None:
        """More than once: a read that is on its way may come to the server behind the first."""
        give_up_at = monotonic() + UNBLOCK_FOR_S
        while self._is_paused and self._expected and monotonic() < give_up_at:
            socket = self._broker.connection.live_socket()
            if socket is not None and socket.dialect is not None:
                with suppress(RedisTrouble):  # the read ends by itself
                    await self._helper.unblock(socket.dialect.client_id)
            await asyncio.sleep(UNBLOCK_EVERY_S)

    async def _rest(self) -> None:
        """While the queue is paused: what has not started goes back, and nothing is read."""
        await self._hand_back(self._lanes.take_unstarted(keep=0))
        while self._is_paused and not self._is_stopping:
            await self._sleep()

    async def _wait_for_lease(self) -> None:
        """Nothing may start here: nothing is read, and if that lasts, what was read goes back for others to run."""
        hand_back_at = monotonic() + LEASE_AWAITED_S
        while self.has_no_lease() and not self._is_stopping:
            if monotonic() >= hand_back_at:
                hand_back_at = float("inf")
                await self._hand_back(self._lanes.take_unstarted(keep=0))
                await self.hand_back_orphans()
            await self._sleep(REGROUP_S)

    async def _run(self) -> None:
        has_backlog = False  # the last read brought all that it asked for
        was_empty = True
        while not self._is_stopping:
            count = await self._room()
            if self._is_stopping:
                return
            if self.has_no_lease():
                await self._wait_for_lease()
                continue
            if self._is_paused:
                await self._rest()
                continue
            # A read that waits must not ask for what an earlier pace allowed: what comes then may be slow.
            if not has_backlog and self._lanes.free > 0:
                count = min(count, self._lanes.free)
            try:
                if self.may_have_orphans:
                    is_full = await self.adopt_orphans()
                    if is_full or self._is_paused:
                        continue
                if self.claims is not None and self.claims.has_work:
                    with self.expecting():
                        self.take(await self.claims.claim(count, self.bounds()))
                    await asyncio.sleep(0)  # the lanes take them first: what they have taken leaves room
                    continue
                came, has_backlog = await self._read(count, None if has_backlog else self._block_ms)
            except RedisTrouble as error:
                await self._mend(error)
                continue
            if came:
                was_empty = False
            elif not was_empty:
                was_empty = True
                if self.on_drained is not None:
                    self.on_drained()

    async def _read(self, count: int, block_ms: int | None) -> tuple[int, bool]:
        """One read, and more of them for as long as each is full and there is room for another.

        Returns how many entries came, and whether the last read brought all that it asked for.
        """
        asked_at, was_idle, came = monotonic(), self._lanes.free > 0, 0
        with self.expecting():
            if self._weight.of(count) > self.bytes_left:
                if claimed := await self._read_by_bytes(count):
                    return len(claimed), True
                if block_ms is None:
                    return 0, False
                count = min(count, self._weight.count_within(self.bytes_left))
            reading = await self._ask(count, block_ms)
            while True:
                entries = await reading
                self._outage.is_over()
                if was_idle and not came and monotonic() - asked_at > IDLE_S:
                    self._estimate.forget(self._lanes.finished, monotonic())
                came += len(entries)
                if len(entries) < max(count, WORTH_READING):  # they have arrived already
                    return came, len(entries) == count
                self._weight.measure(len(entries), self._broker.read_bytes)
                count = self._room_behind(len(entries))
                if count:  # hot: the server fetches the next batch while this one is decoded and run
                    reading = await self._ask(count, None)
                self.arrive(entries)
                self._lanes.wake()
                if not count:
                    return came, True

    def _ask(self, count: int, block_ms: int | None) -> Awaitable[asyncio.Future[list[Entry]]]:
        held_back = max(count, WORTH_READING)
        me, now, bound = (self._group, self._consumer), self._arrive_now, self._max_reply_bytes
        return self._broker.read(*me, count, block_ms, now, held_back, bound)

    async def _read_by_bytes(self, count: int) -> list[Claimed]:
        """Where large entries are about: a script reads as many as fit in, and does not wait."""
        claimed = await self._broker.read_within(self._group, self._consumer, count, self.bounds())
        self._outage.is_over()
        self.take(claimed)
        await asyncio.sleep(0)  # the lanes take them first: what they have taken leaves room
        return claimed

    def _room_behind(self, coming: int) -> int:
        """How many entries to ask for behind so many that have just come; 0 if something else is to be done first."""
        if self._is_stopping or self._is_paused or self.may_have_orphans or self._adopted:
            return 0
        if (self.claims is not None and self.claims.has_work) or self._broker.connection.live_socket() is None:
            return 0
        if self.unsettled() > MAX_UNSETTLED:
            return 0
        self._estimate.measure(self._lanes.finished, monotonic())
        room = min(self._lanes.free - coming + self._estimate.ahead(), self._read_count)
        if self._weight.of(coming + room) > self.bytes_left:
            return 0
        return room if room >= WORTH_READING else 0

    def _arrive_now(self, entries: list[Entry]) -> None:
        """As soon as the reply is read, outside of any task."""
        self._weight.measure(len(entries), self._broker.read_bytes)
        self.arrive(entries)
        self._lanes.begin()  # without the roll's lock: a handler may take long over its first step

    def room(self) -> int:
        """How many claimed entries there is room for."""
        is_closed = self._is_stopping or self._is_paused or self.bytes_left <= 0 or self.has_no_lease()
        return 0 if is_closed else self._lanes.free + self._estimate.ahead()

    async def _room(self) -> int:
        """How many entries to ask for, once there is room for any."""
        lanes = self._lanes
        while True:
            self._estimate.measure(lanes.finished, monotonic())
            ahead = self._estimate.ahead()
            # Half of what may wait is a good batch: smaller ones cost trips, larger ones let the inbox run dry.
            lanes.low_water = ahead // 2
            count = lanes.free + ahead
            has_room = count > 0 and lanes.waiting <= lanes.low_water
            if is_full := has_room and self.bytes_left <= 0:
                lanes.low_water = lanes.waiting // 2
            self._awaits_settling = has_room and (is_full or self.unsettled() > MAX_UNSETTLED)
            if (has_room and not self._awaits_settling) or self._is_stopping or self._is_paused or self.has_no_lease():
                return min(count, self._read_count)
            slept_from = monotonic()
            await self._sleep(STALE_S)
            if monotonic() - slept_from >= STALE_S and not self._is_stopping:
                await self._shed()

    def on_settled(self) -> None:
        """Redis knows of more that has ended here."""
        if self._awaits_settling:
            self.wake()

    async def _shed(self) -> None:
        """Hand back what waits here for longer than it should, because the handler has become slower."""
        self._estimate.measure(self._lanes.finished, monotonic())
        await self._hand_back(self._lanes.take_unstarted(keep=2 * self._estimate.ahead() + 1))

    async def _hand_back(self, jobs: list[Delivery]) -> None:
        self._on_way_back = {job.entry_id for job in jobs}
        try:
            for start in range(0, len(jobs), SHED_A_CALL):
                held = [(job.entry_id, job.earlier_deliveries) for job in jobs[start : start + SHED_A_CALL]]
                await self._broker.release_entries(self._group, self._consumer, held)
        except RedisTrouble:
            self.may_have_orphans = True  # they are still pending for us, and found again
        finally:
            self._on_way_back = set()

    async def _mend(self, error: RedisTrouble) -> None:
        """Wait, or put right what can be put right; the loop then reads again."""
        action = action_for(error)
        if action is ErrorAction.NO_GROUP:  # whoever sees to it says so in the log
            self._on_group_gone()
            await asyncio.sleep(REGROUP_S)
            return
        if isinstance(error, ReplyTooLarge):
            log.info(
                "worker %s reads fewer at a time, because jobs are larger than expected: %s", self._consumer, error
            )
            self._weight.bytes = float(self._max_bytes)
        pause = self._outage.goes_on(error)
        self.may_have_orphans = isinstance(error, (ConnectionLost, CommandTimeout)) or self.may_have_orphans
        if not self._is_stopping:
            await asyncio.sleep(pause)
