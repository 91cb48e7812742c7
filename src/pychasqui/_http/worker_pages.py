"""What a worker shows on its port: /metrics, /healthz (its event loop turns) and /readyz (it can run jobs)."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from http import HTTPStatus

from .._core.clock import lease_clock
from .._redis.connection import Connection
from .._version import __version__
from .._worker.event_writer import EventWriter
from .._worker.heartbeat import Heartbeat
from .._worker.lanes import Lanes
from .._worker.promoter import Promoter
from .._worker.scheduler import Scheduler
from ..metrics import GuardedSinks
from .prometheus_sink import PrometheusSink
from .server import Answer, Page
from .text_format import CONTENT_TYPE, Metric


class WorkerPages:
    def __init__(
        self,
        sink: PrometheusSink,
        *,
        concurrency: int,
        lanes: Lanes,
        heartbeat: Heartbeat,
        promoter: Promoter,
        scheduler: Scheduler,
        event_writer: EventWriter | None,
        sinks: GuardedSinks,
        connections: Sequence[Connection],
    ) -> None:
        self.is_closing = False
        self._sink = sink
        self._concurrency = concurrency
        self._lanes = lanes
        self._heartbeat = heartbeat
        self._promoter = promoter
        self._scheduler = scheduler
        self._event_writer = event_writer
        self._sinks = sinks
        self._connections = connections  # the first is the one that work depends on

    def pages(self) -> dict[str, Page]:
        return {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}

    async def _metrics(self) -> Answer:
        return Answer(self._sink.render(self._gauges()), content_type=CONTENT_TYPE)

    async def _healthz(self) -> Answer:
        return Answer("ok\n")

    async def _readyz(self) -> Answer:
        trouble = self.trouble()
        return Answer("ok\n") if trouble is None else Answer(f"{trouble}\n", HTTPStatus.SERVICE_UNAVAILABLE)

    def trouble(self) -> str | None:
        """Why this worker cannot run jobs now, or why those that are delayed or repeated do not come."""
        if self.is_closing:
            return "closing"
        if self._connections[0].live_socket() is None:
            return "no connection to Redis"
        if lease_clock() >= self._lanes.lease_until:
            return "no lease" if self._heartbeat.trouble is None else f"no lease: {self._heartbeat.trouble}"
        return self._promoter.trouble or self._scheduler.trouble

    def _gauges(self) -> Iterator[Metric]:
        """What is known without being counted for it."""
        numbers = (
            ("worker_concurrency", "gauge", "How many handlers may run at the same time.", self._concurrency),
            ("worker_busy", "gauge", "How many do.", len(self._lanes.running())),
            ("worker_waiting", "gauge", "Jobs that this worker has read and not started yet.", self._lanes.waiting),
            ("worker_loop_lag_seconds", "gauge", "How late the event loop was last.", self._heartbeat.loop_lag_s),
            ("worker_ready", "gauge", "1 if this worker can run jobs.", int(self.trouble() is None)),
            ("redis_reconnects_total", "counter", "Connections made again after a loss.", self._reconnects()),
            ("schedule_missed_total", "counter", "Repeatables found unfired past their time.", self._scheduler.missed),
            ("set_aside_total", "counter", "Delayed members and repeatables that were none.", self._set_aside()),
            ("events_dropped_total", "counter", "Events that Redis did not take.", self._dropped()),
            ("metrics_refused_total", "counter", "Records that a sink has raised at.", self._sinks.refused),
        )
        for name, kind, about, number in numbers:
            metric = Metric(f"chasquimq_{name}", "counter" if kind == "counter" else "gauge", about)
            metric.set(number)
            yield metric
        yield self._build_info()

    def _reconnects(self) -> int:
        return sum(max(0, connection.openings - 1) for connection in self._connections)

    def _set_aside(self) -> int:
        return self._promoter.set_aside + self._scheduler.set_aside

    def _dropped(self) -> int:
        return 0 if self._event_writer is None else self._event_writer.dropped

    def _build_info(self) -> Metric:
        socket = self._connections[0].live_socket()
        redis = "" if socket is None or socket.dialect is None else str(socket.dialect)
        info = Metric("chasquimq_build_info", "gauge", "What runs here.", "version", "python", "redis")
        info.set(1, __version__, platform.python_version(), redis)
        return info
