"""Adds the metrics to a `prometheus_client` registry. Needs the extra `prometheus`.

    sink = PrometheusSink("emails")
    REGISTRY.register(SinkCollector(sink))
    worker = Worker("emails", handle, metrics=sink)

PrometheusSink counts in plain ints and renders them itself; SinkCollector gives a registry the same numbers. A program
without a registry does not need this module: `Worker(metrics_port=...)` and QueueExporter serve pages themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from .._http.prometheus_sink import PrometheusSink
from ..exporter import QueueExporter

__all__ = ["PrometheusSink", "QueueExporter", "SinkCollector"]


class SinkCollector(Collector):
    """Gives a registry the numbers of one or more PrometheusSinks, one for each queue."""

    def __init__(self, *sinks: PrometheusSink) -> None:
        self._sinks = sinks

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for sink in self._sinks:
            for family in text_string_to_metric_families(sink.render()):
                if family.name in families:  # a registry takes each name once
                    families[family.name].samples.extend(family.samples)
                else:
                    families[family.name] = family
        yield from families.values()
