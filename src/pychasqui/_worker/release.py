"""Hands unstarted jobs back, so that other workers run them at once and without using up an attempt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from .._core.delivery import Delivery
from .._redis.broker import Broker
from ..errors import RedisTrouble
from .shared import Shared
from .thread_lanes import AnyLanes

RELEASED_A_CALL = 500


async def release_jobs(jobs: list[Delivery], release: Callable[[list[tuple[bytes, int]]], Awaitable[Any]]) -> None:
    """Calls `release` with a batch of entry ids at a time, each with how often it was delivered before."""
    for start in range(0, len(jobs), RELEASED_A_CALL):
        await release([(job.entry_id, job.earlier_deliveries) for job in jobs[start : start + RELEASED_A_CALL]])


class Releaser:
    """Takes jobs out of the inbox and releases their entries in Redis."""

    def __init__(self, broker: Broker, shared: Shared, lanes: AnyLanes) -> None:
        self.being_released: set[bytes] = set()  # entries that are still pending for this worker, but being released
        self._broker = broker
        self._group, self._consumer = shared.group, shared.consumer
        self._may_have_orphans = shared.may_have_orphans
        self._lanes = lanes

    async def try_release_unstarted_jobs(self, kept_count: int = 0) -> None:
        """Releases all but the first `kept_count` jobs that wait for a lane."""
        jobs = self._lanes.take_out_unstarted_jobs(kept_count)
        self.being_released = {job.entry_id for job in jobs}
        try:
            await release_jobs(jobs, partial(self._broker.release_entries, self._group, self._consumer))
        except RedisTrouble:
            self._may_have_orphans.set()  # they are still pending for this worker, which finds them again
        finally:
            self.being_released = set()
