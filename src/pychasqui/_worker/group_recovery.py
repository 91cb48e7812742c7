"""Reports what this worker holds while its group is gone, so that the group is made again with those entries in it.

Entries may be on their way to the worker when it reports, in the buffer of a socket. They are not in the report, so
they belong to other workers from then on and must not be started. The heartbeat's thread sends the report and the
worker's loop receives entries; the lock keeps the two apart.
"""

from __future__ import annotations

import threading

from .._core.guarded_log import GuardedLogger
from .._core.limits import MAX_WORKER_LEASE_MS
from .._redis.broker import Broker
from .shared import Holdings

log = GuardedLogger("chasqui.worker")

NEVER = -1


class GroupRecovery:
    """Sends one report at a time. The intake drops entries that were asked for before the last report."""

    def __init__(self, group: str, consumer: str, lease_ms: int, holdings: Holdings) -> None:
        self._holdings = holdings
        self.lock = threading.Lock()  # held from the look at `reports` until what came is among what is held
        self._me = (group, consumer, lease_ms)
        self._group, self._lease_ms = group, lease_ms
        self.reports = 0  # how many there were; to be compared with a last_report_number_or_never() with the lock held
        self._is_under_way = False

    async def report_held_to_rebuild_group(self, broker: Broker) -> bool:
        """Reports what is held if the group is gone, which also renews the lease. Returns whether the group exists."""
        await self.shorten_impossible_leases(broker)
        with self.lock:
            self.reports += 1
            self._is_under_way = True
            held = list(self._holdings.held_delivery_numbers().items())
        try:
            return await broker.report_held_to_rebuild_group(*self._me, held)
        finally:
            self._is_under_way = False

    async def shorten_impossible_leases(self, broker: Broker) -> None:
        """Shortens leases that no worker can have taken, so that nothing waits for their end."""
        for name in await broker.shorten_impossible_leases(self._group, self._lease_ms):
            log.warning(
                "%r has a lease that ends more than %d h from now, which no worker takes: it is cut to %d ms",
                name[:200].decode("utf-8", "replace"),
                MAX_WORKER_LEASE_MS // 3_600_000,
                self._lease_ms,
            )

    def last_report_number_or_never(self) -> int:
        """Returns the number of the last report; NEVER while one is on its way.

        Entries that come meanwhile may be of the group as it was before.
        """
        with self.lock:
            return NEVER if self._is_under_way else self.reports
