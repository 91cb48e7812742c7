"""Counters, gauges and histograms, the text format of Prometheus, and label values made of names that others chose."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Literal

from .._core.printable import printable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_NAMES = 200
MAX_LABEL_CHARS = 100  # of a job name or a repeatable's key, which is repeated in each line
OTHER = "_other"  # the label for all names past MAX_NAMES: a producer that invents names must not fill our memory

LabelValues = tuple[str, ...]


class Metric:
    """A counter or a gauge: one number for each combination of its labels' values."""

    def __init__(self, name: str, kind: Literal["counter", "gauge"], about: str, *labels: str) -> None:
        self.name = name
        self.kind: str = kind
        self.about = about
        self._labels = labels
        self._values: dict[LabelValues, float] = {} if labels else {(): 0}

    def increase(self, *label_values: str, by: float = 1) -> None:
        self._values[label_values] = self._values.get(label_values, 0) + by

    def set(self, number: float, *label_values: str) -> None:
        self._values[label_values] = number

    def clear(self) -> None:
        """Removes all values; the metric is not rendered until it is set again."""
        self._values.clear()

    def get(self, *label_values: str) -> float:
        return self._values.get(label_values, 0)

    def render_lines(self, common_labels: Mapping[str, str]) -> Iterator[str]:
        for values, number in self._values.copy().items():  # another thread may add a label meanwhile
            labels = _format_labels(common_labels, zip(self._labels, values, strict=True))
            yield f"{self.name}{labels} {format_number(number)}"


class Buckets:
    """How often values fell into each bucket, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: list[float]) -> None:
        total, least = sum(values), self.bounds[0]
        self.sum += total
        # hot: with many short jobs all values are in the first bucket. It takes 3 ns a value if the sum shows that,
        # 25 if the maximum must be found, 100 if each value must be sorted in. No value is below 0.
        if total <= least or max(values) <= least:
            self.counts[0] += len(values)
            return
        counts, bounds = self.counts, self.bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1


class Histogram:
    kind = "histogram"

    def __init__(self, name: str, about: str, bounds: tuple[float, ...], *labels: str) -> None:
        self.name = name
        self.about = about
        self._bounds = bounds
        self._labels = labels
        self._buckets: dict[LabelValues, Buckets] = {} if labels else {(): Buckets(bounds)}

    def get_or_make_buckets(self, *label_values: str) -> Buckets:
        found = self._buckets.get(label_values)
        if found is None:
            found = self._buckets[label_values] = Buckets(self._bounds)
        return found

    def render_lines(self, common_labels: Mapping[str, str]) -> Iterator[str]:
        bounds = [*map(format_number, self._bounds), "+Inf"]
        for values, buckets in self._buckets.copy().items():  # another thread may add a label meanwhile
            labels = list(zip(self._labels, values, strict=True))
            totals = list(accumulate(buckets.counts))
            for bound, total in zip(bounds, totals, strict=True):
                yield f"{self.name}_bucket{_format_labels(common_labels, [*labels, ('le', bound)])} {total}"
            yield f"{self.name}_sum{_format_labels(common_labels, labels)} {format_number(buckets.sum)}"
            yield f"{self.name}_count{_format_labels(common_labels, labels)} {totals[-1]}"


class JobNameLabels:
    """Maps job names to label values: the first `max_names` names, each cut to a length, and OTHER for the rest."""

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._max_names = max_names
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        return self._remember_name_or_return_other(make_short_printable_label_value(name))

    def _remember_name_or_return_other(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= self._max_names:
                return OTHER
            self._known.add(name)
        return name


def make_short_printable_label_value(text: str) -> str:
    """Makes a label value of a name that others chose."""
    return printable(text, MAX_LABEL_CHARS)


def render(metrics: Iterable[Metric | Histogram], common_labels: Mapping[str, str]) -> str:
    """Renders the text format of Prometheus; every line has `common_labels`. Omits metrics without a value."""
    lines: list[str] = []
    for metric in metrics:
        own = list(metric.render_lines(common_labels))
        if own:
            lines += (
                f"# HELP {metric.name} {_escape_help(metric.about)}",
                f"# TYPE {metric.name} {metric.kind}",
                *own,
            )
    return "".join(f"{line}\n" for line in lines)


def _format_labels(common_labels: Mapping[str, str], own_labels: Iterable[tuple[str, str]]) -> str:
    pairs = [f'{label}="{_escape_label_value(value)}"' for label, value in (*common_labels.items(), *own_labels)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escape_label_value(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def format_number(number: float) -> str:
    """Formats a number, also infinities and NaN, as Prometheus does."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else ("+Inf" if number > 0 else "-Inf")
    return str(int(number)) if number == int(number) else repr(float(number))
