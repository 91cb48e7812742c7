"""Finds orphans: entries that are pending for this worker without its knowledge.

Such an entry came in a reply that was lost, or came back to this worker, or was dropped by the intake as stale. The
shared flag `may_have_orphans` says that there may be some. Redis may also execute a read or a claim long after this
worker has given it up, and looked for what it could have brought: that shows by how many entries are pending.

An entry that this worker hands back is no orphan before Redis would refuse that: see release.py.
"""

from __future__ import annotations

from typing import NamedTuple

from .._core.guarded_log import GuardedLogger
from .._redis.broker import Broker
from ..errors import RedisTrouble
from .intake import Intake
from .prefetch import Prefetch
from .release import Releaser
from .shared import Shared

log = GuardedLogger("chasqui.worker")

ORPHANS_A_PAGE = 500
SURPLUS_LOOKS = 4  # in a row; at a single look a reply may just be on its way


class OrphanSearch(NamedTuple):
    """How far a search for orphans has come. Its end is fixed when it begins: later entries are no orphans."""

    after: bytes
    last: bytes


class Orphans:
    """adopt_orphans_until_full_unless_paused() takes them in; try_release_orphans() releases them for other workers."""

    def __init__(self, broker: Broker, shared: Shared, intake: Intake, prefetch: Prefetch, releaser: Releaser) -> None:
        self._broker = broker  # not the one that a blocked read holds up
        self._group, self._consumer = shared.group, shared.consumer
        self._holdings = shared.holdings
        self._may_have_orphans = shared.may_have_orphans
        self._is_paused, self._is_closing = shared.is_paused, shared.is_closing
        self._intake = intake
        self._prefetch = prefetch
        self._releaser = releaser
        self._search: OrphanSearch | None = None  # one that had to stop because no more fitted in
        self._is_searching = False
        self._surplus_looks = 0

    @property
    def may_exist(self) -> bool:
        """Whether there may be orphans that no search has looked for yet."""
        return self._may_have_orphans.is_set or self._search is not None

    def flag_orphans_after_repeated_surplus(self, pending: int) -> None:
        """Gets how many entries are pending for this worker, from time to time."""
        known = self._holdings.collect_held_delivery_numbers().keys() | self._releaser.unconfirmed_ids
        self._surplus_looks = self._surplus_looks + 1 if pending > len(known) else 0
        if self._surplus_looks >= SURPLUS_LOOKS:
            self._surplus_looks = 0
            self._may_have_orphans.set()

    async def adopt_orphans_until_full_unless_paused(self) -> bool:
        """Finds orphans and takes them in. If there is no room for all, the next call goes on there.

        A search that waits for room begins again if there may be orphans where it has looked already.

        Returns whether to look at the room again: some were taken in, or there was none for them.
        """
        if self._is_searching or self._is_paused.is_set:  # what is adopted while the queue is paused would start
            return False
        self._is_searching = True
        if self._may_have_orphans.is_set:
            self._search = None
            self._may_have_orphans.clear()
        try:
            return await self._adopt_orphans_and_ack_deleted()
        except RedisTrouble:
            self._search = None
            self._may_have_orphans.set()
            raise
        finally:
            self._is_searching = False

    async def _adopt_orphans_and_ack_deleted(self) -> bool:
        is_full, orphans = False, 0
        search = self._search if self._search is not None else await self._begin_orphan_search_if_any_pending()
        while search is not None:
            self._search = search
            if self._prefetch.bytes_left <= 0:
                is_full = True
                break
            page = await self._adopt_orphans_of_page_unless_stale(search)
            if page is None:
                self._search = None
                break
            orphans += page.adopted
            search = search._replace(after=page.last)
            if page.deleted:
                await self._broker.ack(self._group, page.deleted)  # deleted while they were pending: nothing to run
        if orphans:
            log.info("worker %s has found %d entries that it did not know of", self._consumer, orphans)
        return is_full or orphans > 0

    async def _begin_orphan_search_if_any_pending(self) -> OrphanSearch | None:
        await self._releaser.forget_releases_past_deadline()
        last = await self._broker.read_last_pending_id(self._group)
        return None if last is None else OrphanSearch(b"", last)

    async def _adopt_orphans_of_page_unless_stale(self, search: OrphanSearch) -> AdoptedPage | None:
        """Returns None if the search is over: there is no further page, or this one is stale."""
        # An entry that is held before, while or after the page is on its way is no orphan.
        with self._intake.collecting_arrived_ids() as known:
            known |= self._holdings.collect_held_delivery_numbers().keys() | self._releaser.unconfirmed_ids
            asked = self._intake.make_staleness_mark()
            page = await self._broker.list_pending_page(
                self._group, self._consumer, *search, ORPHANS_A_PAGE, self._prefetch.choose_byte_bounds()
            )
            lost = self._intake.adopt_unknown_entries_unless_stale(page, known, asked)
        if lost is None or not page:
            return None
        deleted = [entry.id for entry in lost if entry.fields is None and not entry.size]
        return AdoptedPage(page[-1].id, len(lost), deleted)

    async def try_release_orphans(self) -> None:
        """Releases entries that are pending for this worker but came too late to be started here."""
        after, has_more = b"", True
        try:
            while has_more:
                page = await self._broker.list_pending_id_page(self._group, self._consumer, after, b"+", ORPHANS_A_PAGE)
                known = set(self._holdings.collect_held_delivery_numbers())
                if not self._is_closing.is_set:  # a second release would let them come back before the first is refused
                    known |= self._releaser.unconfirmed_ids
                await self._releaser.release([(one, deliveries - 1) for one, deliveries in page if one not in known])
                if has_more := len(page) == ORPHANS_A_PAGE:
                    after = page[-1][0]
        except RedisTrouble as error:
            log.debug("worker %s hands back later what it cannot start: %s", self._consumer, error)


class AdoptedPage(NamedTuple):
    """What came of one page of pending entries."""

    last: bytes  # its last id
    adopted: int
    deleted: list[bytes]  # ids of orphans that are not in the stream any more
