"""What a worker says it holds while its group is gone, so that the group can be made anew around it.

Entries may be on their way to the worker when it speaks: in the buffer of a socket, where nobody has seen them yet.
They are not in what it says, so they are somebody else's from then on and must not be started. It is the keeper's
thread that speaks and the worker's loop that receives; the lock keeps the two apart.
"""

from __future__ import annotations

import logging
import threading

from .._core.limits import MAX_WORKER_LEASE_MS
from .._redis.broker import Broker
from .shared import Holdings

log = logging.getLogger("chasqui.worker")

NEVER = -1


class GroupRecovery:
    """One report at a time. Whoever asks for entries notes the moment, and starts none if there was a report since."""

    def __init__(self, group: str, consumer: str, lease_ms: int, holdings: Holdings) -> None:
        self._holdings = holdings
        self.lock = threading.Lock()  # held from the look at `reports` until what came is among what is held
        self._me = (group, consumer, lease_ms)
        self._group, self._lease_ms = group, lease_ms
        self.reports = 0  # how many there were; to be compared with a moment with the lock held
        self._is_under_way = False

    async def report(self, broker: Broker) -> bool:
        """Say what is held, if the group is gone; that renews the lease as well. Returns whether the group is there."""
        await self.cap_leases(broker)
        with self.lock:
            self.reports += 1
            self._is_under_way = True
            held = list(self._holdings.held().items())
        try:
            return await broker.rebuild_group(*self._me, held)
        finally:
            self._is_under_way = False

    async def cap_leases(self, broker: Broker) -> None:
        """Nobody is waited for until the end of a lease that no worker can have taken."""
        for name in await broker.cap_leases(self._group, self._lease_ms):
            log.warning(
                "%r has a lease that ends more than %d h from now, which no worker takes: it ends in %d ms",
                name[:200].decode("utf-8", "replace"),
                MAX_WORKER_LEASE_MS // 3_600_000,
                self._lease_ms,
            )

    def moment(self) -> int:
        """Now; never, while a report is under way: what comes meanwhile may be of the group before it arrives."""
        with self.lock:
            return NEVER if self._is_under_way else self.reports
