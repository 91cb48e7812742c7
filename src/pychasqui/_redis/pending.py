"""The broker's calls about entries that consumers of a group hold: list them, claim them, release them."""

from __future__ import annotations

from .._core.limits import RELEASED
from . import scripts
from .command_replies import read_last_pending_id, read_pending_count_by_consumer, read_pending_entries
from .leases import RELEASED_IDLE_MS, WORKERS_KEPT_MS, LeaseCalls
from .replies import ByteBounds, ClaimedEntry, ReleasedEntries, read_entries_with_delivery_counts, read_released_entries


class PendingCalls(LeaseCalls):
    async def count_held_entries_by_consumer(self, group: str) -> dict[bytes, int]:
        """Returns how many entries each consumer holds."""
        return read_pending_count_by_consumer(await self.call("XPENDING", self._keys.stream, group))

    async def read_last_pending_id(self, group: str) -> bytes | None:
        """Returns the last entry that is pending for any consumer."""
        return read_last_pending_id(await self.call("XPENDING", self._keys.stream, group))

    async def list_pending_page(
        self, group: str, consumer: str, after_id: bytes, last_id: bytes, count: int, bounds: ByteBounds
    ) -> list[ClaimedEntry]:
        """Returns a page of entries that are pending for this consumer, after an entry id; b"" for the first page."""
        arguments = (group, consumer, _make_range_start_after(after_id), last_id, count, *bounds)
        return read_entries_with_delivery_counts(
            await self.run_script(scripts.LIST_PENDING, (self._keys.stream,), arguments)
        )

    async def list_pending_id_page(
        self, group: str, consumer: str, after_id: bytes, last_id: bytes, count: int
    ) -> list[tuple[bytes, int]]:
        """Returns a page of the ids that are pending for this consumer, each with how often it was delivered."""
        page = await self.call(
            "XPENDING", self._keys.stream, group, _make_range_start_after(after_id), last_id, count, consumer
        )
        return [(entry.entry_id, entry.deliveries) for entry in read_pending_entries(page)]

    async def take_over_if_lease_is_same(
        self,
        group: str,
        consumer: str,
        dead_consumer: bytes,
        lease: float,
        min_idle_ms: int,
        count: int,
        bounds: ByteBounds,
    ) -> list[ClaimedEntry] | None:
        """Claims entries of a dead worker; None if its lease was renewed meanwhile, so that it lives."""
        keys = (self._keys.stream, self._keys.workers_of(group))
        arguments = (group, consumer, dead_consumer, repr(lease), min_idle_ms, count, *bounds)
        reply = await self.run_script(scripts.TAKE_OVER, keys, arguments)
        return None if reply is None else read_entries_with_delivery_counts(reply)

    async def claim_idle_without_lease(
        self, group: str, consumer: str, min_idle_ms: int, count: int, bounds: ByteBounds
    ) -> list[ClaimedEntry]:
        """Claims entries that lie idle with consumers without a lease."""
        keys = (self._keys.stream, self._keys.workers_of(group))
        return read_entries_with_delivery_counts(
            await self.run_script(scripts.CLAIM_IDLE, keys, (group, consumer, min_idle_ms, count, *bounds))
        )

    async def increment_delivery_counts_if_same(
        self, group: str, consumer: str, entries: list[tuple[bytes, int]]
    ) -> None:
        """Counts one more delivery of entries of this consumer, each with the delivery that was seen."""
        arguments = (word for entry in entries for word in entry)
        await self.run_script(scripts.COUNT_DELIVERY, (self._keys.stream,), (group, consumer, *arguments))

    async def release_some_entries(
        self, group: str, consumer: str, held: list[tuple[bytes, int]], deadline_ms: int
    ) -> ReleasedEntries:
        """Hands unstarted entries back, each with the number of its earlier deliveries, as many as one call may.

        A call that is executed after the deadline, by the server's clock, does nothing.
        """
        keys = (self._keys.stream, self._keys.workers_of(group))
        head = (group, consumer, RELEASED, RELEASED_IDLE_MS, WORKERS_KEPT_MS, deadline_ms)
        arguments = (word for entry in held for word in entry)
        return read_released_entries(await self.run_script(scripts.RELEASE_ENTRIES, keys, (*head, *arguments)))


def _make_range_start_after(after: bytes) -> bytes:
    """Returns the start of a range that begins after an entry."""
    return b"(" + after if after else b"-"
