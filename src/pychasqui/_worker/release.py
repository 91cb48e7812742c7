"""Hands unstarted jobs back, so that other workers run them at once and without using up an attempt.

The network may deliver a request after its sender has given it up. So each hand-back has a deadline, after which Redis
refuses it. While one is not confirmed, its entries are neither this worker's nor another's: they must not start here
before the server's clock is past that deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from time import monotonic

from .._core.delivery import Delivery
from .._redis.broker import Broker
from ..errors import CommandTimeout, RedisTrouble, ReplyError
from .shared import Shared
from .thread_lanes import AnyLanes

RELEASED_A_CALL = 500
RELEASE_WITHIN_MS = 2000  # a hand-back is refused this much later, and two round trips
LONGEST_DEADLINE_MS = 60_000  # a deadline that is further away shows that the server's clock was set back


class Releaser:
    """Takes jobs out of the inbox and releases their entries in Redis."""

    def __init__(self, broker: Broker, shared: Shared, lanes: AnyLanes) -> None:
        self._broker = broker  # not the one that a blocked read holds up
        self._group, self._consumer = shared.group, shared.consumer
        self._may_have_orphans = shared.may_have_orphans
        self._lanes = lanes
        self._being_released: set[bytes] = set()
        self._deadlines_ms: dict[bytes, int] = {}  # of entries whose release may still be executed

    @property
    def unconfirmed_ids(self) -> set[bytes]:
        """Entries that are being released, or may still be: those that are pending for this worker are no orphans."""
        return self._being_released | self._deadlines_ms.keys()

    async def try_release_unstarted_jobs(self, kept_count: int = 0) -> None:
        """Releases all but the first `kept_count` jobs that wait for a lane."""
        try:
            await self.release(list_entries_of_jobs(self._lanes.take_out_unstarted_jobs(kept_count)))
        except RedisTrouble:
            self._may_have_orphans.set()  # those that are still pending for this worker are found again

    async def release(self, entries: list[tuple[bytes, int]]) -> None:
        """Releases entries, each with how often it was delivered before; raises RedisTrouble if some are not."""
        self._being_released = {entry_id for entry_id, _ in entries}
        try:
            while entries:
                entries = entries[await self._release_some_and_count_looked_at(entries[:RELEASED_A_CALL]) :]
        finally:
            self._being_released = set()
            self._flag_orphans_later_if_unconfirmed(RELEASE_WITHIN_MS)

    async def _release_some_and_count_looked_at(self, entries: list[tuple[bytes, int]]) -> int:
        """Returns how many of them Redis has looked at, from the first on."""
        asked_at = monotonic()
        now_ms = await self._broker.read_server_time_ms()
        deadline_ms = now_ms + RELEASE_WITHIN_MS + int(2000 * (monotonic() - asked_at))
        ids = [entry_id for entry_id, _ in entries]
        self._deadlines_ms.update(dict.fromkeys(ids, deadline_ms))
        try:
            answer = await self._broker.release_some_entries(self._group, self._consumer, entries, deadline_ms)
        except ReplyError:  # it was answered, so it is not on its way any more
            self._forget_deadlines(ids)
            raise
        self._forget_deadlines(ids)
        if not answer.looked_at:
            raise CommandTimeout("the server got a hand-back after its deadline")
        return answer.looked_at

    async def forget_releases_past_deadline(self) -> None:
        """Redis refuses them by now: what is still pending for this worker is its own again."""
        if not self._deadlines_ms:
            return
        now_ms = await self._broker.read_server_time_ms()
        self._forget_deadlines(
            [one for one, at_ms in self._deadlines_ms.items() if not now_ms <= at_ms <= now_ms + LONGEST_DEADLINE_MS]
        )
        self._flag_orphans_later_if_unconfirmed(max(self._deadlines_ms.values(), default=now_ms) - now_ms)

    def _flag_orphans_later_if_unconfirmed(self, wait_ms: int) -> None:
        if self._deadlines_ms:
            asyncio.get_running_loop().call_later(wait_ms / 1000, self._may_have_orphans.set)

    def _forget_deadlines(self, ids: Iterable[bytes]) -> None:
        for entry_id in ids:
            self._deadlines_ms.pop(entry_id, None)


def list_entries_of_jobs(jobs: Collection[Delivery]) -> list[tuple[bytes, int]]:
    """Returns the entries of jobs, each with how often it was delivered before."""
    return [(job.entry_id, job.earlier_deliveries) for job in jobs]
