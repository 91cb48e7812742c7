"""Measures round trips to Redis: where one takes too long, no lease can be held, and the worker runs nothing."""

from __future__ import annotations

from .._core.clock import lease_clock
from .._core.guarded_log import GuardedLogger
from .._redis.broker import Broker
from .shared import Lease

log = GuardedLogger("chasqui.worker")

# A renewal that is sent each third of a lease and answered after two thirds of it holds the lease without a gap.
MAX_TRIP_SHARE_OF_LEASE = 0.6  # of a lease
TRIPS_A_LEASE = 3  # what is advised
MEASURED_TIMES = 3
MEASURED_FOR_S = 5.0


class RoundTrips:
    """check_or_measure_whether_lease_can_hold() measures before a lease begins.

    record_round_trip_and_set_timeout() measures by each renewal.
    """

    def __init__(self, broker: Broker, consumer: str, lease: Lease, lease_ms: int) -> None:
        self.trouble: str | None = None  # why there is no lease, if that is known
        self._broker = broker
        self._consumer = consumer
        self._lease = lease
        self._lease_ms = lease_ms
        self._longest_s = MAX_TRIP_SHARE_OF_LEASE * lease_ms / 1000
        self._trip_s = 0.0
        self._is_near = False  # the last renewal has shown that a lease can be held over such trips

    async def check_or_measure_whether_lease_can_hold(self) -> bool:
        """Returns whether a lease can be held, by the last renewal or else by measuring."""
        if self._is_near:
            return True
        trip_s = await self._set_timeout_and_measure_round_trip()
        if trip_s <= self._longest_s:
            if self.trouble is not None:
                log.info("worker %s can hold its lease again", self._consumer)
            self.trouble = None
            return True
        if self.trouble is None:
            log.error(
                "a round trip of worker %s to Redis takes %.0f ms: it cannot hold a lease of %d ms and runs nothing; "
                "set lease_ms to at least %.0f",
                self._consumer,
                1000 * trip_s,
                self._lease_ms,
                1000 * TRIPS_A_LEASE * trip_s,
            )
        self.trouble = f"a round trip to Redis takes {1000 * trip_s:.0f} ms, lease_ms is {self._lease_ms}"
        return False

    async def _set_timeout_and_measure_round_trip(self) -> float:
        """Returns the shortest of a few; the first may have to open the connection."""
        self._broker.set_timeout(max(MEASURED_FOR_S, self._lease_ms / 1000))
        best = float("inf")
        for _ in range(MEASURED_TIMES):
            sent_at = lease_clock()
            await self._broker.read_server_time_ms()
            best = min(best, lease_clock() - sent_at)
            if best <= self._longest_s:
                break
        return best

    def record_round_trip_and_set_timeout(self, trip_s: float) -> None:
        """A renewal was answered after this time.

        A connection that has gone dead without a word must not cost the lease: it is given up in time for another one,
        but not before an answer can have come.
        """
        self._trip_s = max(trip_s, 0.7 * self._trip_s)
        lease_s = self._lease_ms / 1000
        self._is_near = trip_s <= self._longest_s
        if not self._is_near:
            self._lease.record_trouble()
        self._broker.set_timeout(min(max(lease_s / 3, 4 * self._trip_s), 2 * lease_s / 3))

    def require_new_measurement(self) -> None:
        """A renewal failed: check_or_measure_whether_lease_can_hold() measures again before the next lease."""
        self._is_near = False
