"""A PrometheusSink joins a user's prometheus_client registry with the numbers that it renders itself."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from pychasqui.metrics import JobOutcome, JobsAdded

prometheus_client = pytest.importorskip("prometheus_client")
prometheus = pytest.importorskip("pychasqui.integrations.prometheus")


def outcome(name: str) -> JobOutcome:
    return JobOutcome(kind="ok", attempt=1, handler_duration_us=2000, name=name)


def test_a_registry_shows_what_the_sink_counts() -> None:
    sink, registry = prometheus.PrometheusSink("emails"), prometheus_client.CollectorRegistry()
    registry.register(prometheus.SinkCollector(sink))
    sink.job_outcome(outcome("send"))
    sink.job_outcome(outcome("send"))
    labels = {"queue": "emails", "name": "send"}
    assert registry.get_sample_value("chasquimq_jobs_completed_total", labels) == 2
    assert registry.get_sample_value("chasquimq_handler_duration_seconds_count", labels) == 2
    assert registry.get_sample_value("chasquimq_handler_duration_seconds_bucket", {**labels, "le": "0.005"}) == 2


def test_a_registry_shows_each_line_that_the_sink_renders() -> None:
    sink, registry = prometheus.PrometheusSink("emails"), prometheus_client.CollectorRegistry()
    registry.register(prometheus.SinkCollector(sink))
    sink.job_outcome(outcome('odd "name" \\ with\nlines'))
    sink.jobs_added(JobsAdded(name="send", mode="now", count=3))

    def values(text: str) -> list[str]:
        return sorted(line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#"))

    def bare(lines: list[str]) -> list[tuple[str, ...]]:
        """Without the order of labels and the way in which numbers are written."""
        return sorted(tuple(sorted(line.replace('.0"', '"'))) for line in lines)

    assert bare(values(prometheus_client.generate_latest(registry).decode())) == bare(values(sink.render()))


def test_sinks_of_two_queues_share_a_registry() -> None:
    sinks = [prometheus.PrometheusSink(name) for name in ("emails", "images")]
    registry = prometheus_client.CollectorRegistry()
    registry.register(prometheus.SinkCollector(*sinks))
    for sink in sinks:
        sink.job_outcome(outcome("run"))
    for name in ("emails", "images"):
        labels = {"queue": name, "name": "run"}
        assert registry.get_sample_value("chasquimq_jobs_completed_total", labels) == 1


def test_a_registry_may_collect_in_a_thread_while_jobs_end() -> None:
    sink, registry = prometheus.PrometheusSink("emails"), prometheus_client.CollectorRegistry()
    registry.register(prometheus.SinkCollector(sink))
    errors: list[Exception] = []

    def collect() -> None:
        try:
            for _ in range(10):
                prometheus_client.generate_latest(registry)
        except Exception as error:  # noqa: BLE001  the test shows it
            errors.append(error)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # the threads take turns in the middle of their loops
    try:
        thread = threading.Thread(target=collect)
        thread.start()
        for number in range(100):
            sink.job_outcome(outcome(f"job-{number}"))
            time.sleep(0.0001)
        thread.join()
    finally:
        sys.setswitchinterval(interval_s)
    assert errors == []
