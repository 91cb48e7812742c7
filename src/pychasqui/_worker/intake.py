"""Takes in entries, whichever way they came: has them decoded and offers them to the lanes, each once.

An entry may come a second time while it is held here: in a page of orphans that was asked for before a read brought
it, or as new, because the group was made again or Redis was restored from an older copy. A worker never runs an entry
beside itself, so what it holds is dropped. What was asked for before the lease was over may be somebody else's, and is
dropped, too. What is still ours is found as orphans: pending for this worker without its knowing.

What waits here is bounded by bytes: `bytes_left` says how much more may come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from .._core.clock import lease_clock
from .._core.delivery import Delivery
from .._core.limits import PAGE_BYTES
from .._core.prefetch import Weight
from .._redis.broker import Broker
from .._redis.replies import Bounds, Claimed, Entry
from ..errors import RedisTrouble
from ..metrics import ReaderBatch
from .group_recovery import GroupRecovery
from .service import Service

log = logging.getLogger("chasqui.worker")

ORPHANS_A_PAGE = 500


class Room(Protocol):
    """What the intake and the reader need to know of the lanes."""

    low_water: int
    finished: int
    lapses: int
    lease_until: float

    @property
    def free(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def waiting_bytes(self) -> int: ...
    def take_unstarted(self, keep: int) -> list[Delivery]: ...
    def offer(self, jobs: list[Delivery]) -> None: ...
    def put(self, jobs: list[Delivery]) -> None: ...
    def wake(self) -> None: ...
    def begin(self) -> None: ...


class Decodes(Protocol):
    """Where entries become deliveries."""

    def decode(self, entries: list[Entry], deliveries: int) -> list[Delivery]: ...
    def reject_oversize(self, entry_id: bytes, deliveries: int, size: int) -> None: ...


class ReadSnapshot(NamedTuple):
    """When entries were asked for, by what can make them somebody else's before they come."""

    lapses: int
    moment: int


class Search(NamedTuple):
    """How far a search for orphans has come. Its end is fixed when it begins: entries that come later are none."""

    after: bytes
    last: bytes


class Intake(Service):
    def __init__(
        self,
        broker: Broker,
        group: str,
        consumer: str,
        *,
        lanes: Room,
        decoder: Decodes,
        recovery: GroupRecovery,
        max_bytes: int,
        max_entry_bytes: int,
    ) -> None:
        super().__init__()
        self._helper = broker  # not the one that a blocked read holds up
        self._group = group
        self._consumer = consumer
        self._lanes = lanes
        self._decoder = decoder
        self._recovery = recovery
        self._held = recovery.held
        self._max_bytes = max_bytes
        self._max_entry_bytes = max_entry_bytes
        self._weight = Weight()
        self._last_id = (0, 0)  # the greatest entry id that was ever taken in
        self._expected = 0
        self._asked = ReadSnapshot(0, 0)
        self.may_have_orphans = False  # a reply may have been lost, and entries with it
        self._search: Search | None = None  # one that had to stop because no more fitted in
        self._known: set[bytes] | None = None  # while orphans are looked for: what certainly is none
        self._adopted: set[bytes] = set()  # orphans found while entries were on their way
        self._on_way_back: set[bytes] = set()  # pending for us still, but being handed back
        self.on_batch: Callable[[ReaderBatch], None] | None = None
        self.unsettled: Callable[[], int] = int  # how many jobs have ended here of which Redis does not know yet

    @property
    def bytes_left(self) -> int:
        """How many bytes of entries may come beside those that wait, or have ended and are not settled yet."""
        expected = self._weight.of(self._lanes.waiting + self.unsettled())
        if 2 * expected < self._max_bytes:  # hot: as good as the sum, which takes 30 ns a job
            return self._max_bytes - int(expected)
        unsettled = self._weight.of(self.unsettled()) if self._weight.is_known else 0
        return self._max_bytes - self._lanes.waiting_bytes - int(unsettled)

    def bounds(self) -> Bounds:
        """What the next script may bring."""
        return Bounds(max(1, min(self.bytes_left, PAGE_BYTES)), self._max_entry_bytes)

    def arrive(self, entries: list[Entry]) -> None:
        """Take in what a read has brought; the lanes are not woken."""
        if self.on_batch is not None:
            self.on_batch(ReaderBatch(len(entries), 0))
        with self._recovery.lock:
            if self._is_stale(self._asked):
                return
            if self._known is not None:
                self._known.update(entry[0] for entry in entries)
            if self._is_behind(entries) or self._adopted:
                known = self._held().keys() | self._adopted
                entries = [entry for entry in entries if entry[0] not in known]
            self._lanes.put(self._decoder.decode(entries, 0))

    def _is_behind(self, entries: list[Entry]) -> bool:
        """Whether what is read as new may have come before: a group hands entries out in their order, once."""
        # hot: a comparison a batch, not one an entry
        is_behind = bool(entries) and _number(entries[0][0]) <= self._last_id
        if entries:
            self._last_id = max(self._last_id, _number(entries[-1][0]))
        return is_behind

    def take(self, claimed: list[Claimed]) -> None:
        """Take in entries that came otherwise than by a plain read, and start them."""
        if self.on_batch is not None and claimed:
            self.on_batch(ReaderBatch(len(claimed), sum(entry.deliveries > 0 for entry in claimed)))
        with self._recovery.lock:
            if self._is_stale(self._asked):
                return
            if self._known is not None:
                self._known.update(entry.id for entry in claimed)
            held = self._held().keys() | self._adopted
            # What an earlier run here still goes on with comes when that run has ended: its outcome will not count.
            self._offer([entry for entry in claimed if entry.id not in held])

    def _offer(self, claimed: list[Claimed]) -> None:
        if not claimed:
            return
        self._last_id = max(self._last_id, *(_number(entry.id) for entry in claimed))
        self._weight.measure(len(claimed), sum(map(_size, claimed)))
        for entry in claimed:
            if entry.fields is not None:
                self._lanes.offer(self._decoder.decode([[entry.id, entry.fields]], entry.deliveries))
            elif entry.size:
                self._decoder.reject_oversize(entry.id, entry.deliveries, entry.size)

    def _asking(self) -> ReadSnapshot:
        return ReadSnapshot(self._lanes.lapses, self._recovery.moment())

    def _is_stale(self, asked: ReadSnapshot) -> bool:
        """Whether entries that were asked for may be somebody else's by now; what is still ours is found as orphans.

        Either the lease was over since then, as after a pause of the whole process, or this worker has said what it
        holds, and they were not among it. To be asked with the roll's lock held.
        """
        was_over = self._lanes.lapses != asked.lapses or self.has_no_lease()
        stale = was_over or self._recovery.reports != asked.moment
        if stale:
            self.may_have_orphans = True
        return stale

    def has_no_lease(self) -> bool:
        """Nothing may start here now."""
        return lease_clock() >= self._lanes.lease_until

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

    async def adopt_orphans(self) -> bool:
        """Find what is pending for us without our knowing: as it came in a reply that was lost, or as it came back.

        By its present delivery it was not started, so that one does not count. Returns whether there is no room for
        all of it now; a later call goes on from there.
        """
        if self._known is not None:  # somebody is at it already
            return False
        self.may_have_orphans, is_full, orphans = False, False, 0
        try:
            search = self._search if self._search is not None else await self._begin_search()
            while search is not None:
                self._search = search
                if self.bytes_left <= 0:
                    self.may_have_orphans = is_full = True
                    break
                # What is held before the page comes, while, and after, is none.
                self._known, asked = set(self._held()) | self._on_way_back, self._asking()
                page = await self._helper.list_pending(
                    self._group, self._consumer, *search, ORPHANS_A_PAGE, self.bounds()
                )
                with self._recovery.lock:
                    if self._is_stale(asked) or not page:
                        self._search = None
                        break
                    lost = self._adopt(page)
                orphans += len(lost)
                search = search._replace(after=page[-1].id)
                if gone := [entry.id for entry in lost if entry.fields is None and not entry.size]:
                    await self._helper.ack(self._group, gone)  # deleted while they were pending: nothing to run
        except RedisTrouble:
            self.may_have_orphans, self._search = True, None
            raise
        finally:
            self._known = None
        if orphans:
            log.info("worker %s has found %d entries that it did not know of", self._consumer, orphans)
        return is_full

    async def hand_back_orphans(self) -> None:
        """Let others have what came too late to be started here, and is pending for us all the same."""
        has_more = self.may_have_orphans
        try:
            while has_more:
                page = await self._helper.list_pending_ids(self._group, self._consumer, b"", b"+", ORPHANS_A_PAGE)
                held = self._held()
                unknown = [(entry_id, deliveries - 1) for entry_id, deliveries in page if entry_id not in held]
                if has_more := bool(unknown):
                    await self._helper.release_entries(self._group, self._consumer, unknown)
        except RedisTrouble as error:
            log.debug("worker %s hands back later what it cannot start: %s", self._consumer, error)

    async def _begin_search(self) -> Search | None:
        self._known = set()  # somebody is at it
        last = await self._helper.last_pending_id(self._group)
        return None if last is None else Search(b"", last)

    def _adopt(self, page: list[Claimed]) -> list[Claimed]:
        """Offer what is unknown of a page of what is pending for us, and return it."""
        known = self._held().keys() | (self._known or set())
        lost = [entry for entry in page if entry.id not in known]
        self._adopted.update(entry.id for entry in lost)
        self._offer([entry._replace(deliveries=entry.deliveries - 1) for entry in lost])
        return lost


def _number(entry_id: bytes) -> tuple[int, int]:
    ms, _, sequence = entry_id.partition(b"-")
    try:
        return int(ms), int(sequence)
    except ValueError:  # no server's id: it is compared with what is held
        return 0, 0


def _size(entry: Claimed) -> int:
    return sum(map(len, entry.fields)) if entry.fields is not None else 0
