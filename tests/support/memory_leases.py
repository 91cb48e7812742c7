"""The calls of MemoryBroker about workers, their leases and what they hold: see memory_broker.py."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import cast

from pychasqui._core.limits import MAX_WORKER_LEASE_MS, RELEASED
from pychasqui._redis.cancellations import Cancellations
from pychasqui._redis.replies import ByteBounds, ClaimedEntry, QueueFlags, ReleasedEntries, RenewalResult
from tests.support.memory_state import Held, MemoryGroup, MemoryState, make_sort_key, with_hooks


class MemoryLeases(MemoryState):
    # Workers and their leases ---------------------------------------------------------------------------------------

    @with_hooks
    async def read_server_time_ms(self) -> int:
        return self.now

    @with_hooks
    async def renew_lease_and_held_entries(
        self,
        group: str,
        consumer: str,
        lease_ms: int,
        held: list[tuple[bytes, int]],
        *,
        record: bytes = b"",
        record_kept_ms: int = 0,
    ) -> RenewalResult:
        self._group(group)
        self.lease_ends[group][consumer.encode()] = self.now + lease_ms
        if record:
            self.worker_records[consumer] = record
        over = sum(end < self.now for end in self.lease_ends[group].values())
        lost = [entry_id for entry_id, delivery in held if not self._is_held(group, consumer, entry_id, delivery)]
        return RenewalResult(
            QueueFlags(self.is_queue_paused, bool(self.cancellations)), len(self.lease_ends[group]) - over, over, lost
        )

    @with_hooks
    async def report_held_to_rebuild_group(
        self, group: str, consumer: str, lease_ms: int, held: list[tuple[bytes, int]]
    ) -> bool:
        """Without other workers the first report is the last."""
        if group not in self.groups:
            own = self.groups[group] = MemoryGroup(max([(0, 0), *(make_sort_key(entry_id) for entry_id, _ in held)]))
            for entry_id in self.stream:
                if make_sort_key(entry_id) <= own.last_read:
                    deliveries = dict(held).get(entry_id)
                    own.pending[entry_id] = Held(RELEASED, 0) if deliveries is None else Held(consumer, deliveries)
        return True

    @with_hooks
    async def find_workers_without_report(self, group: str) -> dict[bytes, float]:
        """No report outlives its call here: the first one brings the group back."""
        living = [(end - self.now, name) for name, end in self.lease_ends[group].items() if end > self.now]
        return {name: left_ms for left_ms, name in sorted(living, reverse=True)}

    @with_hooks
    async def read_lease_end_or_zero(self, group: str, consumer: str) -> float:
        return self.lease_ends[group].get(consumer.encode(), 0.0)

    @with_hooks
    async def leave_group_if_lease_is_same(self, group: str, consumer: str, lease: float) -> bool:
        if self.lease_ends[group].get(consumer.encode(), 0.0) not in (0.0, lease):
            return False
        self.worker_records.pop(consumer, None)
        own = self.groups.get(group, MemoryGroup())
        if any(held.consumer == consumer for held in own.pending.values()):
            self.lease_ends[group][consumer.encode()] = 0.0
            return False
        self.lease_ends[group].pop(consumer.encode(), None)
        return True

    @with_hooks
    async def read_lease_ends(self, group: str) -> dict[bytes, float]:
        return dict(self.lease_ends[group])

    @with_hooks
    async def read_ended_leases(self, group: str, now_ms: int) -> dict[bytes, float]:
        return {name: end for name, end in self.lease_ends[group].items() if end < now_ms}

    @with_hooks
    async def shorten_impossible_leases(self, group: str, lease_ms: int) -> list[bytes]:
        leases = self.lease_ends[group]
        far = sorted((end, name) for name, end in leases.items() if end > self.now + MAX_WORKER_LEASE_MS)
        leases.update((name, self.now + lease_ms) for _, name in far)
        return [name for _, name in far]

    @with_hooks
    async def register_queue_or_log_refusal(self) -> None:
        self.is_registered = True

    @with_hooks
    async def read_queue_flags(self) -> QueueFlags:
        return QueueFlags(self.is_queue_paused, bool(self.cancellations))

    @with_hooks
    async def read_cancellations_and_remove_outdated(self) -> Cancellations:
        """The notes are those that the test has set."""
        return self.cancellations

    @with_hooks
    async def try_to_subscribe_to_pause_and_cancel_hints(self, on_hint: Callable[[], None]) -> bool:
        """Messages come in the loop that has subscribed."""
        loop = asyncio.get_running_loop()
        self.on_pause = lambda: cast(None, loop.call_soon_threadsafe(on_hint))
        return True

    # Pending entries ------------------------------------------------------------------------------------------------

    @with_hooks
    async def count_held_entries_by_consumer(self, group: str) -> dict[bytes, int]:
        return dict(Counter(held.consumer.encode() for held in self._group(group).pending.values()))

    @with_hooks
    async def read_last_pending_id(self, group: str) -> bytes | None:
        return max(self._group(group).pending, key=make_sort_key, default=None)

    def _pending(self, group: str, consumer: str, after: bytes, last: bytes, count: int) -> list[tuple[bytes, Held]]:
        low, high = make_sort_key(after), (2**64, 0) if last == b"+" else make_sort_key(last)
        own = sorted(self._group(group).pending.items(), key=lambda item: make_sort_key(item[0]))
        return [one for one in own if one[1].consumer == consumer and low < make_sort_key(one[0]) <= high][:count]

    @with_hooks
    async def list_pending_page(
        self, group: str, consumer: str, after: bytes, last: bytes, count: int, bounds: ByteBounds
    ) -> list[ClaimedEntry]:
        page = self._pending(group, consumer, after, last, count)
        return [ClaimedEntry(entry_id, self.stream.get(entry_id), held.deliveries) for entry_id, held in page]

    @with_hooks
    async def list_pending_id_page(
        self, group: str, consumer: str, after: bytes, last: bytes, count: int
    ) -> list[tuple[bytes, int]]:
        return [(entry_id, held.deliveries) for entry_id, held in self._pending(group, consumer, after, last, count)]

    def _claim(self, group: str, consumer: str, dead: str, count: int) -> list[ClaimedEntry]:
        claimed: list[ClaimedEntry] = []
        for entry_id, held in self._pending(group, dead, b"", b"+", count):
            claimed.append(ClaimedEntry(entry_id, self.stream.get(entry_id), held.deliveries))
            self._group(group).pending[entry_id] = Held(consumer, held.deliveries + 1)
        return claimed

    @with_hooks
    async def take_over_if_lease_is_same(
        self, group: str, consumer: str, dead: bytes, lease: float, min_idle_ms: int, count: int, bounds: ByteBounds
    ) -> list[ClaimedEntry] | None:
        """Nothing is idle here: what a worker without a lease holds is taken at once."""
        if self.lease_ends[group].get(dead) != lease:
            return None
        claimed = self._claim(group, consumer, dead.decode(), count)
        if not self._pending(group, dead.decode(), b"", b"+", 1):
            del self.lease_ends[group][dead]
        return claimed

    @with_hooks
    async def claim_idle_without_lease(
        self, group: str, consumer: str, min_idle_ms: int, count: int, bounds: ByteBounds
    ) -> list[ClaimedEntry]:
        claimed: list[ClaimedEntry] = []
        for holder in await self.count_held_entries_by_consumer(group):
            if holder != consumer.encode() and holder not in self.lease_ends[group]:
                claimed += self._claim(group, consumer, holder.decode(), count - len(claimed))
        return claimed

    @with_hooks
    async def increment_delivery_counts_if_same(self, group: str, consumer: str, seen: list[tuple[bytes, int]]) -> None:
        for entry_id, delivery in seen:
            held = self._group(group).pending.get(entry_id)
            if held is not None and (held.consumer, held.deliveries) == (consumer, delivery):
                held.deliveries += 1

    @with_hooks
    async def release_some_entries(
        self, group: str, consumer: str, held: list[tuple[bytes, int]], deadline_ms: int
    ) -> ReleasedEntries:
        if self.now > deadline_ms:
            return ReleasedEntries(0, 0)
        mine = [(one, earlier) for one, earlier in held if self._is_held(group, consumer, one, earlier + 1)]
        for entry_id, earlier in mine:
            self._group(group).pending[entry_id] = Held(RELEASED, earlier)
            self.lease_ends[group][RELEASED.encode()] = 0.0
        return ReleasedEntries(len(mine), len(held))
