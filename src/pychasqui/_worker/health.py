"""Looks at the parts of a worker and says how it is, for the pages that it serves."""

from __future__ import annotations

from collections.abc import Sequence

from .._core.health import WorkerHealth
from .._redis.broker import Broker
from ..metrics import GuardedSinks
from .event_writer import EventWriter
from .group_recovery import GroupRecovery
from .loop_watch import LoopWatch
from .promoter import PromoterService
from .round_trips import RoundTrips
from .scheduler import SchedulerService
from .shared import Shared


class HealthCheck:
    """read_health() reads what the parts know; it asks Redis for nothing."""

    def __init__(
        self,
        shared: Shared,
        brokers: Sequence[Broker],
        *,
        recovery: GroupRecovery,
        round_trips: RoundTrips,
        loop_watch: LoopWatch,
        promoter: PromoterService,
        scheduler: SchedulerService,
        event_writer: EventWriter | None,
        metrics: GuardedSinks | None,
    ) -> None:
        self._lease, self._holdings, self._is_closing = shared.lease, shared.holdings, shared.is_closing
        self._brokers = brokers  # the first is the one that work depends on
        self._recovery = recovery
        self._round_trips = round_trips
        self._loop_watch = loop_watch
        self._promoter = promoter
        self._scheduler = scheduler
        self._event_writer = event_writer
        self._metrics = metrics

    def read_health(self) -> WorkerHealth:
        return WorkerHealth(
            trouble=self._find_reason_not_ready(),
            concurrency=len(self._holdings.running),
            busy=len(self._holdings.list_running_jobs()),
            waiting=len(self._holdings.inbox),
            loop_lag_s=self._loop_watch.lag_s,
            reconnects=sum(broker.reconnects for broker in self._brokers),
            missed_fires=self._scheduler.missed,
            buried_count=self._promoter.buried_count + self._scheduler.buried_count,
            dropped_events=0 if self._event_writer is None else self._event_writer.dropped,
            refused_records=0 if self._metrics is None else self._metrics.refused,
            redis=self._brokers[0].server_name_and_version,
        )

    def _find_reason_not_ready(self) -> str | None:
        if self._is_closing.is_set:
            return "closing"
        if not self._brokers[0].is_connected:
            return "no connection to Redis"
        if (why := self._recovery.trouble) is not None:
            return why
        if self._lease.is_over:
            why = self._round_trips.trouble
            return "no lease" if why is None else f"no lease: {why}"
        return self._promoter.trouble or self._scheduler.trouble
