"""Decides how many entries this worker may hold: by how fast its jobs finish, by bytes, and by what is not settled.

It asks for no more than the lanes will start within about 100 ms: a fast handler is never short of work, and a slow one
leaves the rest of the queue to other workers. `bytes_left` bounds what waits here.
"""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

from .._core.limits import PAGE_BYTES
from .._core.pace import EntrySizeEstimate, PaceEstimate
from .._redis.replies import ByteBounds
from .shared import Shared
from .thread_lanes import AnyLanes

MAX_UNSETTLED = 3000  # where Redis is slower than the handlers: what has ended and is not settled must not pile up


class PrefetchRoom(NamedTuple):
    """How many entries to ask for."""

    entries: int
    is_open: bool  # whether to ask now
    awaits_settling: bool  # whether it opens when Redis has answered for some outcomes
    free_lanes: int


class Prefetch:
    """Tracks the pace and the sizes that the intake and the reader measure, and gives the room for reads and claims."""

    def __init__(self, shared: Shared, lanes: AnyLanes, *, max_bytes: int, max_entry_bytes: int) -> None:
        self._lease = shared.lease
        self._is_paused, self._is_closing = shared.is_paused, shared.is_closing
        self._unsettled_count = shared.holdings.count_unsettled_without_refused
        self._lanes = lanes
        self._batch_sizes = shared.batch_sizes
        self._max_bytes = max_bytes
        self._max_entry_bytes = max_entry_bytes
        self._estimate = PaceEstimate(monotonic())
        self._entry_size = EntrySizeEstimate()

    @property
    def bytes_left(self) -> int:
        """How many bytes of entries may come beside those that wait, or have ended and are not settled yet."""
        unsettled = self._unsettled_count()
        expected = self._entry_size.estimate_bytes(self._lanes.waiting_count + unsettled)
        if 2 * expected < self._max_bytes:  # hot: as good as the sum, which takes 30 ns a job
            return self._max_bytes - int(expected)
        unsettled_bytes = self._entry_size.estimate_bytes(unsettled) if self._entry_size.is_known else 0
        return self._max_bytes - self._lanes.inbox_bytes - int(unsettled_bytes)

    @property
    def has_free_lane(self) -> bool:
        return self._lanes.free_minus_waiting > 0

    def had_free_lane_before(self, arrived_count: int) -> bool:
        """Returns whether a lane had nothing to do when that many entries arrived, which the lanes have by now."""
        return self._lanes.free_minus_waiting + arrived_count > 0

    def choose_byte_bounds(self) -> ByteBounds:
        """Returns how many bytes the next script may bring, and how large an entry may be."""
        return ByteBounds(max(1, min(self.bytes_left, PAGE_BYTES)), self._max_entry_bytes)

    # What was measured ----------------------------------------------------------------------------------------------

    def record_entry_sizes(self, count: int, total_bytes: int) -> None:
        self._entry_size.record_entries(count, total_bytes)

    def assume_large_entries(self) -> None:
        """Has the next read bounded by bytes, after a reply that was too large."""
        self._entry_size.set_expected_entry_bytes(float(self._max_bytes))

    def forget_pace(self) -> None:
        """Forgets the pace after an idle spell, because the next jobs may be slower."""
        self._estimate.forget_pace(self._lanes.finished, monotonic())

    # Room -----------------------------------------------------------------------------------------------------------

    def measure_room_and_set_low_water(self) -> PrefetchRoom:
        """Returns the room for the next read. The lanes send the room signal when it may have grown."""
        lanes = self._lanes
        self._estimate.record_finished_if_time_passed(lanes.finished, monotonic())
        ahead = self._estimate.estimate_jobs_to_prefetch()
        free = lanes.free_minus_waiting
        count = free + ahead
        # Half of what may wait is a good batch: smaller ones cost trips, larger ones let the inbox run dry.
        low_water = ahead // 2
        has_room = count > 0 and lanes.waiting_count <= low_water
        if is_full := has_room and self.bytes_left <= 0:
            low_water = lanes.waiting_count // 2
        lanes.set_low_water(low_water)
        awaits_settling = has_room and (is_full or self._unsettled_count() > MAX_UNSETTLED)
        return PrefetchRoom(min(count, self._batch_sizes.read), has_room and not awaits_settling, awaits_settling, free)

    def count_to_read_next(self, coming: int) -> int:
        """Returns how many entries to ask for behind those that have just come; 0 if a read is not worth it yet."""
        if self._unsettled_count() > MAX_UNSETTLED:
            return 0
        self._estimate.record_finished_if_time_passed(self._lanes.finished, monotonic())
        room = min(
            self._lanes.free_minus_waiting - coming + self._estimate.estimate_jobs_to_prefetch(), self._batch_sizes.read
        )
        if self.may_exceed_bytes_left(coming + room):
            return 0
        return room if room >= self._batch_sizes.min_entries_worth_reading else 0

    def count_room_for_claims(self) -> int:
        """Returns how many entries of other consumers there is room for."""
        may_start = not (self._is_paused.is_set or self._is_closing.is_set or self._lease.is_over)
        return (
            0
            if not may_start or self.bytes_left <= 0
            else self._lanes.free_minus_waiting + self._estimate.estimate_jobs_to_prefetch()
        )

    def may_exceed_bytes_left(self, count: int) -> bool:
        """Returns whether this many entries may take more bytes than are left."""
        return self._entry_size.estimate_bytes(count) > self.bytes_left

    def count_that_fits_but_at_least_one(self) -> int:
        """Returns how many entries to wait for, so that they fit in."""
        return self._entry_size.count_entries_to_wait_for(self.bytes_left)

    def measure_and_choose_max_unstarted_to_keep(self) -> int:
        """Returns how many unstarted jobs may stay here while the lanes take none."""
        self._estimate.record_finished_if_time_passed(self._lanes.finished, monotonic())
        return 2 * self._estimate.estimate_jobs_to_prefetch() + 1
