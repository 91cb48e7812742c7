"""Takes in every entry that reaches this worker: read as new, claimed from other consumers, or adopted as an orphan.

An entry may come a second time while it is held here: in a page of orphans that was asked for before a read brought
it, or as new, because the group was made again or Redis was restored from an older copy. A worker never runs an entry
beside itself, so the intake drops what is held already. It also drops stale entries: those that were asked for before
the lease was over, or before this worker reported its holdings, may be another worker's by now. Those that are still
ours are found as orphans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .._core.clock import lease_clock
from .._redis.replies import ClaimedEntry, Entry
from .._wire.entry import make_entry_sort_key
from ..metrics import ReaderBatch
from .decoder import Decoder
from .group_recovery import GroupRecovery
from .prefetch import Prefetch
from .shared import Shared
from .thread_lanes import AnyLanes

MS_DIGITS = 13  # of the time in an entry id
HYPHEN = ord("-")  # what follows them


class StalenessMark(NamedTuple):
    """The state when entries were asked for. If it has changed when they come, they may belong to another worker."""

    lapses: int
    last_report_number: int


class Intake:
    """Has arriving entries decoded and puts each into the lanes' inbox once."""

    def __init__(
        self,
        shared: Shared,
        lanes: AnyLanes,
        decoder: Decoder,
        recovery: GroupRecovery,
        prefetch: Prefetch,
        *,
        on_batch: Callable[[ReaderBatch], None] | None,
    ) -> None:
        self._lease = shared.lease
        self._holdings = shared.holdings
        self._may_have_orphans = shared.may_have_orphans
        self._lanes = lanes
        self._decoder = decoder
        self._recovery = recovery
        self._prefetch = prefetch
        self._on_batch = on_batch
        self._last_id = b"0-0"  # the greatest entry id that was ever taken in
        self._expected = 0  # how many calls are under way that bring entries
        self._staleness_mark = StalenessMark(0, 0)
        self._arrived: set[bytes] | None = None  # while a page of orphans is on its way: what comes meanwhile
        self._adopted: set[bytes] = set()  # orphans found while entries were on their way

    @property
    def is_expecting(self) -> bool:
        """Whether entries are on their way to this worker."""
        return self._expected > 0

    @property
    def has_adopted_while_expecting(self) -> bool:
        """Whether orphans were taken in while entries were on their way."""
        return bool(self._adopted)

    @contextmanager
    def guarding_against_stale_entries(self) -> Iterator[None]:
        """Wraps a call that brings entries.

        What arrives is stale if it is older than the mark that this makes, and orphans that are found meanwhile are
        taken in only once.
        """
        if not self._expected:
            self._staleness_mark = self.make_staleness_mark()
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1
            if not self._expected:
                self._adopted.clear()

    # Fresh entries --------------------------------------------------------------------------------------------------

    def take_in_new_unless_stale_and_start_lone_job(self, entries: list[Entry]) -> None:
        """Takes in the entries of a read, outside of any task: a job that is alone starts at once."""
        self._take_in_new_unless_stale(entries)
        self._lanes.start_lone_job_or_wake()  # without the recovery's lock: a handler may take long over its first step

    def take_in_new_unless_stale_and_wake(self, entries: list[Entry]) -> None:
        """Takes in the entries of a read, and wakes the lanes."""
        self._take_in_new_unless_stale(entries)
        self._lanes.wake_for_waiting_jobs()

    def _take_in_new_unless_stale(self, entries: list[Entry]) -> None:
        if self._on_batch is not None:
            self._on_batch(ReaderBatch(len(entries), 0))
        with self._recovery.lock:
            if self._check_if_stale_and_then_flag_orphans(self._staleness_mark):
                return
            if self._arrived is not None:
                self._arrived.update(entry[0] for entry in entries)
            if self._advance_last_id_and_check_if_behind(entries) or self._adopted:
                known = self._holdings.collect_held_delivery_numbers().keys() | self._adopted
                entries = [entry for entry in entries if entry[0] not in known]
            self._lanes.put_without_waking(self._decoder.decode_put_off_or_settle_entries(entries, 0))

    def _advance_last_id_and_check_if_behind(self, entries: list[Entry]) -> bool:
        """Returns whether entries that are read as new may have come before.

        A group hands entries out in order, once.
        """
        if not entries:
            return False
        first, last, greatest = entries[0][0], entries[-1][0], self._last_id
        # hot: compared as they are, 1 us of a cold cache. Until 2286, times have 13 digits; behind those, ids of one
        # length are in the order of their bytes.
        if (
            MS_DIGITS < len(greatest) == len(first) == len(last)
            and greatest[MS_DIGITS] == first[MS_DIGITS] == last[MS_DIGITS] == HYPHEN
            and greatest < first <= last
        ):
            self._last_id = last
            return False
        self._last_id = max(greatest, last, key=make_entry_sort_key)
        return make_entry_sort_key(first) <= make_entry_sort_key(greatest)

    # Claimed entries and orphans ------------------------------------------------------------------------------------

    def take_in_claimed_unless_stale_and_wake(self, claimed: list[ClaimedEntry]) -> None:
        """Takes in entries that a script has claimed or read, and starts them."""
        if self._on_batch is not None and claimed:
            self._on_batch(ReaderBatch(len(claimed), sum(entry.deliveries > 0 for entry in claimed)))
        with self._recovery.lock:
            if self._check_if_stale_and_then_flag_orphans(self._staleness_mark):
                return
            if self._arrived is not None:
                self._arrived.update(entry.id for entry in claimed)
            held = self._holdings.collect_held_delivery_numbers().keys() | self._adopted
            # An entry that an earlier run here still works on comes again when that run has ended, without an outcome.
            self._decode_or_settle_and_put_into_lanes([entry for entry in claimed if entry.id not in held])

    @contextmanager
    def collecting_arrived_ids(self) -> Iterator[set[bytes]]:
        """Yields a set that collects the ids of all entries that arrive meanwhile: they are no orphans."""
        arrived = self._arrived = set()
        try:
            yield arrived
        finally:
            self._arrived = None

    def adopt_unknown_entries_unless_stale(
        self, page: list[ClaimedEntry], known_ids: set[bytes], mark: StalenessMark
    ) -> list[ClaimedEntry] | None:
        """Takes in and returns the entries of a pending page that are not known; None if the page is stale."""
        with self._recovery.lock:
            if self._check_if_stale_and_then_flag_orphans(mark):
                return None
            held = self._holdings.collect_held_delivery_numbers()
            lost = [entry for entry in page if entry.id not in held and entry.id not in known_ids]
            self._adopted.update(entry.id for entry in lost)
            # An orphan was not started by its last delivery, so that delivery does not count.
            self._decode_or_settle_and_put_into_lanes(
                [entry._replace(deliveries=entry.deliveries - 1) for entry in lost]
            )
            return lost

    def _decode_or_settle_and_put_into_lanes(self, claimed: list[ClaimedEntry]) -> None:
        if not claimed:
            return
        self._last_id = max(self._last_id, *(entry.id for entry in claimed), key=make_entry_sort_key)
        self._prefetch.record_entry_sizes(len(claimed), sum(map(_count_entry_bytes, claimed)))
        for entry in claimed:
            if entry.fields is not None:
                self._lanes.put_and_wake(
                    self._decoder.decode_put_off_or_settle_entries([[entry.id, entry.fields]], entry.deliveries)
                )
            elif entry.size:
                self._decoder.reject_oversize_entry(entry.id, entry.deliveries, entry.size)

    # Staleness ------------------------------------------------------------------------------------------------------

    def make_staleness_mark(self) -> StalenessMark:
        """Returns the state to compare with when the entries come; taken before they are asked for."""
        return StalenessMark(self._lease.lapses, self._recovery.get_last_report_number_or_never())

    def _check_if_stale_and_then_flag_orphans(self, mark: StalenessMark) -> bool:
        """Returns whether others may have taken the entries that were asked for. Those still ours become orphans.

        Either the lease was over since then, as after a pause of the whole process, or this worker has reported what it
        holds, and they were not among it. The caller holds the recovery's lock.
        """
        lease = self._lease
        # hot: a call less than is_over, and two look-ups less than the mark's names
        stale = (lease.lapses, self._recovery.reports) != mark or lease_clock() >= lease.until
        if stale:
            self._may_have_orphans.set()
        return stale


def _count_entry_bytes(entry: ClaimedEntry) -> int:
    return sum(map(len, entry.fields)) if entry.fields is not None else 0
