"""Reports what this worker holds while its group is gone, so that the group is made again with those entries in it.

Entries may be on their way to the worker when it reports, in the buffer of a socket. They are not in the report, so
they belong to other workers from then on and must not be started. The heartbeat's thread sends the report and the
worker's loop receives entries; the lock keeps the two apart.
"""

from __future__ import annotations

import threading

from .._core.clock import lease_clock
from .._core.guarded_log import GuardedLogger
from .._core.limits import MAX_WORKER_LEASE_MS
from .._core.printable import printable
from .._redis.broker import Broker
from ..errors import RedisTrouble
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
        self.reports = (
            0  # how many there were; to be compared with a get_last_report_number_or_never() with the lock held
        )
        self._is_under_way = False
        self._look_at = 0.0  # when to look again for workers that do not report; 0: the group is there
        self._awaited = b""  # the worker whose report has not come for a lease
        self._awaited_until = 0.0  # when its lease ends

    @property
    def trouble(self) -> str | None:
        """Why the group has been gone for more than a lease; None if it is there, or is made again soon."""
        awaited, left_s = self._awaited, max(0.0, self._awaited_until - lease_clock())
        if not awaited:
            return None
        name = printable(awaited[:200].decode("utf-8", "replace"))
        return f"the consumer group is gone, and waits for '{name}', whose lease ends in {left_s:.0f} s, to report"

    def note_group_exists(self) -> None:
        """The group is there again."""
        self._look_at, self._awaited = 0.0, b""

    async def report_held_unless_group_exists(self, broker: Broker) -> bool:
        """Reports what is held if the group is gone, which also renews the lease. Returns whether the group exists."""
        await self.shorten_impossible_leases(broker)
        with self.lock:
            self.reports += 1
            self._is_under_way = True
            held = list(self._holdings.collect_held_delivery_numbers().items())
        try:
            is_back = await broker.report_held_to_rebuild_group(*self._me, held)
        finally:
            self._is_under_way = False
        if is_back:
            self.note_group_exists()
        return is_back

    async def find_and_log_awaited_worker_if_due(self, broker: Broker) -> None:
        """Logs which worker the group waits for.

        A living one reports within a third of its lease. One that does not may be a name that somebody wrote.
        """
        now = lease_clock()
        is_time = 0 < self._look_at <= now
        if is_time or not self._look_at:
            self._look_at = now + self._lease_ms / 1000
        if not is_time:
            return
        try:
            missing = await broker.find_workers_without_report(self._group)
        except RedisTrouble:
            return
        awaited, left_ms = next(iter(missing.items()), (b"", 0.0))
        is_other = awaited != self._awaited
        self._awaited, self._awaited_until = awaited, now + left_ms / 1000
        if awaited and is_other:
            log.warning("%s; if no such worker lives, remove its name from the queue's list of workers", self.trouble)

    async def shorten_impossible_leases(self, broker: Broker) -> None:
        """Shortens leases that no worker can have taken, so that nothing waits for their end."""
        for name in await broker.shorten_impossible_leases(self._group, self._lease_ms):
            log.warning(
                "%r has a lease that ends more than %d h from now, which no worker takes: it is cut to %d ms",
                name[:200].decode("utf-8", "replace"),
                MAX_WORKER_LEASE_MS // 3_600_000,
                self._lease_ms,
            )

    def get_last_report_number_or_never(self) -> int:
        """Returns the number of the last report; NEVER while one is on its way.

        Entries that come meanwhile may be of the group as it was before.
        """
        with self.lock:
            return NEVER if self._is_under_way else self.reports
