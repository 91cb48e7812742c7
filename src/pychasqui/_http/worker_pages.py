"""The pages that a worker serves: /metrics, /healthz (its event loop runs) and /readyz (it can run jobs)."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Literal, NamedTuple

from .._core.health import WorkerHealth
from .._version import __version__
from ..metrics import GuardedSinks, MetricsSink
from .prometheus_sink import PrometheusSink
from .server import Answer, Page
from .text_format import CONTENT_TYPE, Metric


class WorkerSinks(NamedTuple):
    """Where a worker records its metrics."""

    guarded: GuardedSinks | None  # None if there is no sink
    served: PrometheusSink | None  # the sink that /metrics renders


def combine_user_and_served_sinks(
    user_sinks: Sequence[MetricsSink], queue_name: str, *, serves_metrics: bool
) -> WorkerSinks:
    """Returns the user's sinks, and a PrometheusSink for /metrics unless one of the user's is one."""
    sinks = list(user_sinks)
    served = next((sink for sink in sinks if isinstance(sink, PrometheusSink)), None)
    if served is None and serves_metrics:
        served = PrometheusSink(queue_name)
        sinks.append(served)
    return WorkerSinks(GuardedSinks(sinks) if sinks else None, served)


class WorkerPages:
    """Renders the worker's health, as `read_health` returns it, and the counts of its sink."""

    def __init__(self, sink: PrometheusSink, read_health: Callable[[], WorkerHealth]) -> None:
        self._sink = sink
        self._read_health = read_health

    def get_pages_by_path(self) -> dict[str, Page]:
        return {"/metrics": self._answer_metrics, "/healthz": self._answer_healthz, "/readyz": self._answer_readyz}

    async def _answer_metrics(self) -> Answer:
        return Answer(self._sink.render(_make_health_metrics(self._read_health())), content_type=CONTENT_TYPE)

    async def _answer_healthz(self) -> Answer:
        return Answer("ok\n")

    async def _answer_readyz(self) -> Answer:
        trouble = self._read_health().trouble
        return Answer("ok\n") if trouble is None else Answer(f"{trouble}\n", HTTPStatus.SERVICE_UNAVAILABLE)


def _make_health_metrics(health: WorkerHealth) -> Iterator[Metric]:
    """Returns the metrics that are read from the worker's health."""
    numbers: tuple[tuple[str, Literal["counter", "gauge"], str, float], ...] = (
        ("worker_concurrency", "gauge", "How many handlers may run at the same time.", health.concurrency),
        ("worker_busy", "gauge", "How many handlers run now.", health.busy),
        ("worker_waiting", "gauge", "Jobs that this worker has read and not started yet.", health.waiting),
        ("worker_loop_lag_seconds", "gauge", "How late the event loop ran its last timer.", health.loop_lag_s),
        ("worker_ready", "gauge", "1 if this worker can run jobs.", int(health.trouble is None)),
        ("redis_reconnects_total", "counter", "Connections made again after a loss.", health.reconnects),
        ("schedule_missed_total", "counter", "Repeatables found after their time.", health.missed_fires),
        (
            "set_aside_total",
            "counter",
            "Delayed members and repeatables that could not be decoded.",
            health.buried_count,
        ),
        ("events_dropped_total", "counter", "Events that Redis did not take.", health.dropped_events),
        ("metrics_refused_total", "counter", "Records at which a sink has raised an error.", health.refused_records),
    )
    for name, kind, about, number in numbers:
        metric = Metric(f"chasquimq_{name}", kind, about)
        metric.set(number)
        yield metric
    info = Metric("chasquimq_build_info", "gauge", "Versions in use.", "version", "python", "redis")
    info.set(1, __version__, platform.python_version(), health.redis)
    yield info
