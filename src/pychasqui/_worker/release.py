"""Hands unstarted jobs back, so that other workers run them at once and without using up an attempt."""

from __future__ import annotations

from .._core.delivery import Delivery
from .._redis.broker import Broker
from ..errors import RedisTrouble
from .lanes import Lanes
from .shared import Shared

RELEASED_A_CALL = 500


class Releaser:
    """Takes jobs out of the inbox and releases their entries in Redis."""

    def __init__(self, broker: Broker, shared: Shared, lanes: Lanes) -> None:
        self.on_their_way: set[bytes] = set()  # entries that are still pending for this worker, but being released
        self._broker = broker
        self._group, self._consumer = shared.group, shared.consumer
        self._may_have_orphans = shared.may_have_orphans
        self._lanes = lanes

    async def release_unstarted(self, keep: int = 0) -> None:
        """Release all but the first `keep` jobs that wait for a lane."""
        await self._release(self._lanes.take_unstarted(keep))

    async def _release(self, jobs: list[Delivery]) -> None:
        self.on_their_way = {job.entry_id for job in jobs}
        try:
            for start in range(0, len(jobs), RELEASED_A_CALL):
                held = [(job.entry_id, job.earlier_deliveries) for job in jobs[start : start + RELEASED_A_CALL]]
                await self._broker.release_entries(self._group, self._consumer, held)
        except RedisTrouble:
            self._may_have_orphans.set()  # they are still pending for us, and found again
        finally:
            self.on_their_way = set()
