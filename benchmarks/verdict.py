"""The arithmetic on samples: medians, ratios within one repeat, and whether each bar was cleared."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.roster import (
    BARE_LOOP,
    OTHER_PYTHON,
    OURS,
    OURS_UVLOOP,
    REDIS_BENCHMARK,
    WHEEL,
    WHEEL_UVLOOP,
)
from benchmarks.runner import Sample

PAIRS = ((OURS, WHEEL), (OURS_UVLOOP, WHEEL_UVLOOP))


class Samples:
    """The samples of a run, asked by scenario, peer and the name of a number in their results."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._found = {(s.scenario, s.peer, s.repeat): s.result for s in samples if not s.error}
        self.repeats = sorted({repeat for _, _, repeat in self._found})

    def values(self, scenario: str, peer: str, number: str = "value") -> list[float]:
        results = (self._found.get((scenario, peer, repeat), {}) for repeat in self.repeats)
        return [float(result[number]) for result in results if number in result]

    def median(self, scenario: str, peer: str, number: str = "value") -> float | None:
        values = self.values(scenario, peer, number)
        return statistics.median(values) if values else None

    def ratio(self, scenario: str, peer: str, other: str, number: str = "value") -> float | None:
        return self._ratio((scenario, peer), (scenario, other), number)

    def share(self, scenario: str, peer: str, number: str) -> float | None:
        """A peer's value as a share of another number that was measured beside it."""
        pairs = zip(self.values(scenario, peer), self.values(scenario, peer, number), strict=False)
        ratios = [value / beside for value, beside in pairs]
        return statistics.median(ratios) if ratios else None

    def _ratio(self, one: tuple[str, str], other: tuple[str, str], number: str) -> float | None:
        """The median of the ratios within each repeat, which a slow minute of the machine cannot bend."""
        ratios = []
        for repeat in self.repeats:
            mine = self._found.get((*one, repeat), {}).get(number)
            theirs = self._found.get((*other, repeat), {}).get(number)
            if mine is not None and theirs:
                ratios.append(mine / theirs)
        return statistics.median(ratios) if ratios else None


@dataclass(frozen=True)
class Verdict:
    """One bar: what was asked, what was measured, and whether it was cleared (None: it was not measured)."""

    claim: str
    peer: str
    bar: str
    measured: str
    cleared: bool | None


def judge(samples: Samples) -> list[Verdict]:
    failures: list[Verdict] = []
    for ours, wheel in PAIRS:
        failures += _against_the_wheel(samples, ours, wheel)
        failures += _against_the_rest(samples, ours)
        failures += _cost_of_showing(samples, ours)
        failures += _latency(samples, ours, wheel)
        failures += _lateness(samples, ours)
        failures += _waits(samples, ours)
    failures += _backlog(samples)
    failures += _memory(samples)
    return failures


def _at_least(claim: str, peer: str, least: float, measured: float | None, note: str = "") -> Verdict:
    text = "not measured" if measured is None else f"{measured:.2f} x{note}"
    return Verdict(claim, peer, f"at least {least:g} x", text, None if measured is None else measured >= least)


def _at_most(claim: str, peer: str, most: float, measured: float | None, show: Callable[[float], str]) -> Verdict:
    text = "not measured" if measured is None else show(measured)
    return Verdict(claim, peer, f"at most {show(most)}", text, None if measured is None else measured <= most)


def _against_the_wheel(samples: Samples, ours: str, wheel: str) -> list[Verdict]:
    bars = {
        "add": 1.5,
        "add-100-tasks": 5,
        "add-bulk-50": 2,
        "add-bulk-1000": 2,
        "work-100": 7,
        "retry": 5,
        "burial": 5,
        "promote": 5,
        "work-events": 7,
        "work-results": 5,
        "work-both": 6,
    }
    return [
        _at_least(f"{scenario} against {wheel}", ours, least, samples.ratio(scenario, ours, wheel))
        for scenario, least in bars.items()
    ]


def _against_the_rest(samples: Samples, ours: str) -> list[Verdict]:
    found = {peer: samples.ratio("work-100", ours, peer) for peer in OTHER_PYTHON}
    ratios = {peer: ratio for peer, ratio in found.items() if ratio is not None}
    nearest = min(ratios, key=lambda peer: ratios[peer]) if ratios else None
    note = f" (nearest: {nearest})" if nearest else ""
    limit = samples.ratio("add-bulk-1000", ours, REDIS_BENCHMARK)
    return [
        _at_least("add-bulk-1000 against redis-benchmark", ours, 0.5, limit),
        _at_least("work-100 against every other Python peer", ours, 20, ratios[nearest] if nearest else None, note),
        _at_least("work-100 against the bare loop", ours, 0.6, samples.ratio("work-100", ours, BARE_LOOP)),
    ]


def _cost_of_showing(samples: Samples, ours: str) -> list[Verdict]:
    """What events, metrics and traces leave of a worker's throughput. Of a traced job, the SDK's span is nearly all."""
    bars = {"work-events": 0.5, "work-metrics": 0.97, "work-traces": 0.1}
    return [
        _at_least(f"{scenario} against the same without", ours, least, samples.share(scenario, ours, "plain"))
        for scenario, least in bars.items()
    ]


def _latency(samples: Samples, ours: str, wheel: str) -> list[Verdict]:
    return [
        _at_most(
            f"latency {name} against {wheel}",
            ours,
            0.5,
            samples.ratio("latency", ours, wheel, f"{name}_us"),
            lambda ratio: f"{ratio:.2f} x",
        )
        for name in ("p50", "p99")
    ]


def _lateness(samples: Samples, ours: str) -> list[Verdict]:
    bars = {"p50": 10_000, "p99": 60_000}
    late = [
        _at_most(
            f"{name} of the time by which delayed jobs are late",
            ours,
            most,
            samples.median("lateness", ours, f"{name}_us"),
            lambda us: f"{us / 1000:.1f} ms",
        )
        for name, most in bars.items()
    ]
    earliest = min(samples.values("lateness", ours, "min_us"), default=None)
    early = None if earliest is None else max(0.0, -earliest)
    return [*late, _at_most("delayed jobs are never early", ours, 0, early, lambda us: f"{us / 1000:.1f} ms")]


def _waits(samples: Samples, ours: str) -> list[Verdict]:
    median_us = samples.median("wait-1000", ours, "p50_us")
    claim = "p50 from a handler's end to who waits, 1,000 waits"
    return [_at_most(claim, ours, 5000, median_us, lambda us: f"{us / 1000:.1f} ms")]


def _backlog(samples: Samples) -> list[Verdict]:
    cost = samples.median("backlog", OURS)
    small, large = samples.median("backlog", OURS, "small_rss_mb"), samples.median("backlog", OURS, "large_rss_mb")
    grown = None if small is None or large is None else abs(large - small)
    apart = None if cost is None else abs(cost - 1)
    return [
        _at_most("cost of a job, large backlog against small", OURS, 0.15, apart, lambda part: f"{part:.1%} apart"),
        _at_most("worker RSS, large backlog against small", OURS, 20, grown, lambda size: f"{size:.1f} MB apart"),
    ]


def _memory(samples: Samples) -> list[Verdict]:
    ratio = samples.ratio("memory", OURS, WHEEL)
    return [_at_most(f"Redis bytes per waiting job against {WHEEL}", OURS, 1.0, ratio, lambda part: f"{part:.3f} x")]
