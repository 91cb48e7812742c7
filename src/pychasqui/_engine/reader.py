"""Reads batches of entries, has them decoded and offers them to the lanes.

It asks for no more than the lanes will start within about 100 ms: a fast handler is never short of work, and a slow
one leaves the rest of the queue to other workers. Whatever happens to Redis, it goes on; only stop() ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import NamedTuple, Protocol

from .._redis.broker import Broker
from .._redis.remedies import Remedy, remedy_for
from .._redis.replies import Claimed, Entry
from ..config import READ_COUNT, REGROUP_S
from ..errors import CommandTimeout, ConnectionLost, RedisTrouble
from ..sinks import ReaderBatch
from .delivery import Delivery
from .pace import Pace
from .roll import Roll
from .service import Outage, Service

log = logging.getLogger("chasqui.worker")

UNBLOCK_EVERY_S = 0.05
UNBLOCK_FOR_S = 2.0
ORPHANS_A_PAGE = 500
IDLE_S = 0.02  # a read that waits for longer, beside free lanes, ends what was known of the pace
STALE_S = 0.5  # jobs that wait here while the lanes take none for so long are better off elsewhere
SHED_A_CALL = 500
MAX_UNSETTLED = 3000  # where Redis is slower than the handlers: what has ended and is not settled must not pile up
WORTH_READING = 500  # while other entries are still to be run: smaller batches cost trips and gain nothing


class Room(Protocol):
    """What the reader needs to know of the lanes."""

    low_water: int
    finished: int
    lapses: int
    lease_until: float

    @property
    def free(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    def take_unstarted(self, keep: int) -> list[Delivery]: ...
    def offer(self, jobs: list[Delivery]) -> None: ...
    def put(self, jobs: list[Delivery]) -> None: ...
    def wake(self) -> None: ...
    def begin(self) -> None: ...


class Claims(Protocol):
    """Where entries come from that others have left behind: they go before new ones."""

    @property
    def has_work(self) -> bool: ...
    async def claim(self, count: int) -> list[Claimed]: ...


class Asked(NamedTuple):
    """When entries were asked for, by what can make them somebody else's before they come."""

    lapses: int
    moment: int


class Reader(Service):
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
        decode: Callable[[list[Entry], int], list[Delivery]],
        roll: Roll,
        on_group_gone: Callable[[], None],
        helper: Broker | None = None,
    ) -> None:
        super().__init__()
        self._broker = broker
        self._helper = helper or broker  # for what must not wait behind a blocked read
        self._group = group
        self._consumer = consumer
        self._lanes = lanes
        self._read_count = min(read_count, READ_COUNT)
        self._block_ms = block_ms
        self._decode = decode  # with the number of earlier deliveries
        self._roll = roll
        self._held = roll.held
        self._on_group_gone = on_group_gone
        self.may_have_orphans = False  # a reply may have been lost, and entries with it
        self._known: set[bytes] | None = None  # while orphans are looked for: what certainly is none
        self._adopted: set[bytes] = set()  # orphans found while entries were on their way
        self._on_way_back: set[bytes] = set()  # pending for us still, but being handed back
        self._expected = 0
        self._asked = Asked(0, 0)
        self._held_before: set[bytes] = set()  # while the group was gone: these come again if others made it anew
        self.claims: Claims | None = None
        self.unsettled: Callable[[], int] = int  # how many jobs have ended here of which Redis does not know yet
        self.on_drained: Callable[[], None] | None = None
        self.on_batch: Callable[[ReaderBatch], None] | None = None
        self._awaits_settling = False
        self._pace = Pace(monotonic())
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

    async def _run(self) -> None:
        has_backlog = False  # the last read brought all that it asked for
        was_empty = True
        while not self._is_stopping:
            count = await self._room()
            if self._is_stopping:
                return
            if self._is_paused:
                await self._rest()
                continue
            # A read that waits must not ask for what an earlier pace allowed: what comes then may be slow.
            if not has_backlog and self._lanes.free > 0:
                count = min(count, self._lanes.free)
            try:
                if self.may_have_orphans:
                    await self.adopt_orphans()
                    if self._is_paused:
                        continue
                if self.claims is not None and self.claims.has_work:
                    with self.expecting():
                        self.take(await self.claims.claim(count))
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
            reading = await self._ask(count, block_ms)
            while True:
                entries = await reading
                self._outage.is_over()
                if was_idle and not came and monotonic() - asked_at > IDLE_S:
                    self._pace.forget(self._lanes.finished, monotonic())
                came += len(entries)
                if len(entries) < max(count, WORTH_READING):  # they have arrived already
                    return came, len(entries) == count
                count = self._room_behind(len(entries))
                if count:  # hot: the server fetches the next batch while this one is decoded and run
                    reading = await self._ask(count, None)
                self._arrive(entries)
                self._lanes.wake()
                if not count:
                    return came, True

    def _ask(self, count: int, block_ms: int | None) -> Awaitable[asyncio.Future[list[Entry]]]:
        held_back = max(count, WORTH_READING)
        return self._broker.read(self._group, self._consumer, count, block_ms, self._arrive_now, held_back)

    def _room_behind(self, coming: int) -> int:
        """How many entries to ask for behind so many that have just come; 0 if something else is to be done first."""
        if self._is_stopping or self._is_paused or self.may_have_orphans or self._adopted:
            return 0
        if (self.claims is not None and self.claims.has_work) or self._broker.connection.live_socket() is None:
            return 0
        if self.unsettled() > MAX_UNSETTLED:
            return 0
        self._pace.measure(self._lanes.finished, monotonic())
        room = min(self._lanes.free - coming + self._pace.ahead(), self._read_count)
        return room if room >= WORTH_READING else 0

    def _arrive_now(self, entries: list[Entry]) -> None:
        """As soon as the reply is read, outside of any task."""
        self._arrive(entries)
        self._lanes.begin()  # without the roll's lock: a handler may take long over its first step

    def _arrive(self, entries: list[Entry]) -> None:
        if self.on_batch is not None:
            self.on_batch(ReaderBatch(len(entries), 0))
        with self._roll.lock:
            if self._is_stale(self._asked):
                return
            if self._known is not None:
                self._known.update(entry[0] for entry in entries)
            if self._held_before or self._adopted:
                self._held_before &= set(self._held())
                entries = [entry for entry in entries if entry[0] not in self._held_before | self._adopted]
            self._lanes.put(self._decode(entries, 0))

    def room(self) -> int:
        """How many claimed entries there is room for."""
        return 0 if self._is_stopping or self._is_paused else self._lanes.free + self._pace.ahead()

    def take(self, claimed: list[Claimed]) -> None:
        """Offer entries that came otherwise than by a read."""
        if self.on_batch is not None and claimed:
            self.on_batch(ReaderBatch(len(claimed), sum(entry.deliveries > 0 for entry in claimed)))
        with self._roll.lock:
            if self._is_stale(self._asked):
                return
            if self._known is not None:
                self._known.update(entry.id for entry in claimed)
            held = self._held().keys() | self._adopted
            # What an earlier run here still goes on with comes when that run has ended: its outcome will not count.
            self._offer([entry for entry in claimed if entry.id not in held])

    def _offer(self, claimed: list[Claimed]) -> None:
        for entry in claimed:
            if entry.fields is not None:
                self._lanes.offer(self._decode([[entry.id, entry.fields]], entry.deliveries))

    def _asking(self) -> Asked:
        return Asked(self._lanes.lapses, self._roll.moment())

    def _is_stale(self, asked: Asked) -> bool:
        """Whether entries that were asked for may be somebody else's by now; what is still ours is found as orphans.

        Either the lease was over since then, as after a pause of the whole process, or this worker has said what it
        holds, and they were not among it. To be asked with the roll's lock held.
        """
        was_over = self._lanes.lapses != asked.lapses or monotonic() >= self._lanes.lease_until
        stale = was_over or self._roll.reports != asked.moment
        if stale:
            self.may_have_orphans = True
        return stale

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """While entries are on their way to us: those that are found as orphans meanwhile must not come twice."""
        if not self._expected:
            self._asked = self._asking()
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1
            if not self._expected:
                self._adopted.clear()

    async def adopt_orphans(self) -> None:
        """Find what is pending for us without our knowing: as it came in a reply that was lost, or as it came back.

        By its present delivery it was not started, so that one does not count.
        """
        if self._known is not None:  # somebody is at it already
            return
        self.may_have_orphans = False
        after, orphans = b"", 0
        try:
            while True:
                # What is held before the page comes, while, and after, is none.
                self._known, asked = set(self._held()) | self._on_way_back, self._asking()
                page = await self._helper.pending_page(self._group, self._consumer, after, ORPHANS_A_PAGE)
                with self._roll.lock:
                    if self._is_stale(asked) or not page:
                        break
                    lost = self._adopt(page)
                orphans += len(lost)
                after = page[-1].id
                if gone := [entry.id for entry in lost if entry.fields is None]:
                    await self._helper.ack(self._group, gone)  # deleted while they were pending: nothing to run
        except RedisTrouble:
            self.may_have_orphans = True
            raise
        finally:
            self._known = None
        if orphans:
            log.info("worker %s has found %d entries that it did not know of", self._consumer, orphans)

    def _adopt(self, page: list[Claimed]) -> list[Claimed]:
        """Offer what is unknown of a page of what is pending for us, and return it."""
        known = self._held().keys() | (self._known or set())
        lost = [entry for entry in page if entry.id not in known]
        self._adopted.update(entry.id for entry in lost)
        self._offer([entry._replace(deliveries=entry.deliveries - 1) for entry in lost])
        return lost

    async def _room(self) -> int:
        """How many entries to ask for, once there is room for any."""
        lanes = self._lanes
        while True:
            self._pace.measure(lanes.finished, monotonic())
            ahead = self._pace.ahead()
            # Half of what may wait is a good batch: smaller ones cost trips, larger ones let the inbox run dry.
            lanes.low_water = ahead // 2
            count = lanes.free + ahead
            has_room = count > 0 and lanes.waiting <= lanes.low_water
            self._awaits_settling = has_room and self.unsettled() > MAX_UNSETTLED
            if (has_room and not self._awaits_settling) or self._is_stopping or self._is_paused:
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
        self._pace.measure(self._lanes.finished, monotonic())
        await self._hand_back(self._lanes.take_unstarted(keep=2 * self._pace.ahead() + 1))

    async def _hand_back(self, jobs: list[Delivery]) -> None:
        self._on_way_back = {job.entry_id for job in jobs}
        try:
            for start in range(0, len(jobs), SHED_A_CALL):
                held = [(job.entry_id, job.earlier_deliveries) for job in jobs[start : start + SHED_A_CALL]]
                await self._broker.release(self._group, self._consumer, held)
        except RedisTrouble:
            self.may_have_orphans = True  # they are still pending for us, and found again
        finally:
            self._on_way_back = set()

    async def _mend(self, error: RedisTrouble) -> None:
        """Wait, or put right what can be put right; the loop then reads again."""
        remedy = remedy_for(error)
        if remedy is Remedy.NO_GROUP:  # whoever sees to it says so in the log
            self._held_before = set(self._held())
            self._on_group_gone()
            await asyncio.sleep(REGROUP_S)
            return
        pause = self._outage.goes_on(error)
        self.may_have_orphans = isinstance(error, (ConnectionLost, CommandTimeout)) or self.may_have_orphans
        if not self._is_stopping:
            await asyncio.sleep(pause)
