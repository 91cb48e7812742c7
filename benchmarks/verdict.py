"""The arithmetic on samples: medians, ratios within one round, and whether each bar was cleared."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
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


@dataclass(frozen=True)
class Ratio:
    """The ratios of two peers within each round: their median and their range."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Ratio | None:
        return cls(statistics.median(ratios), min(ratios), max(ratios)) if ratios else None

    def __str__(self) -> str:
        median, least, most = (_digits(number) for number in (self.median, self.least, self.most))
        return median if self.least == self.most else f"{median} ({least} to {most})"


def _digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


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

    def ratio(self, scenario: str, peer: str, other: str, number: str = "value") -> Ratio | None:
        """Taken within each round, which a slow minute of the machine cannot bend."""
        return self.between((scenario, peer), (scenario, other), number)

    def between(self, one: tuple[str, str], other: tuple[str, str], number: str = "value") -> Ratio | None:
        """As `ratio`, for two scenarios of a round."""
        ratios = []
        for repeat in self.repeats:
            mine = self._found.get((*one, repeat), {}).get(number)
            theirs = self._found.get((*other, repeat), {}).get(number)
            if mine is not None and theirs:
                ratios.append(mine / theirs)
        return Ratio.of(ratios)

    def share(self, scenario: str, peer: str, number: str) -> Ratio | None:
        """A peer's value as a share of another number that was measured beside it."""
        pairs = zip(self.values(scenario, peer), self.values(scenario, peer, number), strict=False)
        return Ratio.of([value / beside for value, beside in pairs])


@dataclass(frozen=True)
class Verdict:
    """One bar: what was asked, what was measured, and whether it was cleared (None: it was not measured)."""

    claim: str
    peer: str
    bar: str
    measured: str
    cleared: bool | None


def judge(samples: Samples) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for ours, wheel in PAIRS:
        verdicts += _against_the_wheel(samples, ours, wheel)
        verdicts += _against_the_rest(samples, ours)
        verdicts += _cost_of_more(samples, ours)
        verdicts += _plain_functions(samples, ours)
        verdicts += _latency(samples, ours, wheel)
        verdicts += _neighbours(samples, ours, wheel)
        verdicts += _small_footprint(samples, ours, wheel)
        verdicts += _lateness(samples, ours)
        verdicts += _waits(samples, ours)
    verdicts += _backlog(samples)
    verdicts += _memory(samples)
    return verdicts


def _at_least(claim: str, peer: str, least: float, measured: Ratio | None, note: str = "") -> Verdict:
    text = "not measured" if measured is None else f"{measured} x{note}"
    return Verdict(claim, peer, f"at least {least:g} x", text, None if measured is None else measured.median >= least)


def _at_most(claim: str, peer: str, most: float, measured: float | None, show: Callable[[float], str]) -> Verdict:
    text = "not measured" if measured is None else show(measured)
    return Verdict(claim, peer, f"at most {show(most)}", text, None if measured is None else measured <= most)


def _ratio_at_most(claim: str, peer: str, most: float, measured: Ratio | None) -> Verdict:
    text = "not measured" if measured is None else f"{measured} x"
    return Verdict(claim, peer, f"at most {most:g} x", text, None if measured is None else measured.median <= most)


def _ms(us: float) -> str:
    return f"{us / 1000:.1f} ms"


def _against_the_wheel(samples: Samples, ours: str, wheel: str) -> list[Verdict]:
    bars = {
        "add": 1.5,
        "add-100-tasks": 5,
        "add-bulk-50": 2,
        "add-bulk-1000": 2,
        "bulk-10k": 1.3,
        "bulk-100k": 1.1,
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


def nearest(samples: Samples, scenario: str, ours: str, peers: Iterable[str]) -> tuple[str, Ratio] | None:
    """Of these peers the one that comes closest to us, with our ratio to it."""
    found = {peer: samples.ratio(scenario, ours, peer) for peer in peers}
    ratios = [(peer, ratio) for peer, ratio in found.items() if ratio is not None]
    return min(ratios, key=lambda pair: pair[1].median) if ratios else None


def _against_the_rest(samples: Samples, ours: str) -> list[Verdict]:
    found = nearest(samples, "work-100", ours, OTHER_PYTHON)
    peer, ratio = found or ("", None)
    limit = samples.ratio("add-bulk-1000", ours, REDIS_BENCHMARK)
    return [
        _at_least("add-bulk-1000 against redis-benchmark", ours, 0.5, limit),
        _at_least("work-100 against every other Python peer", ours, 20, ratio, f" (nearest: {peer})"),
        _at_least("work-100 against the bare loop", ours, 0.6, samples.ratio("work-100", ours, BARE_LOOP)),
    ]


def _cost_of_more(samples: Samples, ours: str) -> list[Verdict]:
    """What events, metrics, traces and many names leave of the same without them. Of a traced job, the SDK's span is
    nearly all."""
    bars = {"work-events": 0.5, "work-metrics": 0.97, "work-traces": 0.1, "bulk-names": 0.85}
    return [
        _at_least(f"{scenario} against the same without", ours, least, samples.share(scenario, ours, "plain"))
        for scenario, least in bars.items()
    ]


def _plain_functions(samples: Samples, ours: str) -> list[Verdict]:
    values = samples.values("def-10ms", ours)
    allowed = 100 / 0.010  # jobs a second of 100 threads
    return [
        _at_least("work-def against coroutines", ours, 0.45, samples.between(("work-def", ours), ("work-100", ours))),
        _at_least(
            "def-10ms against what 100 threads allow", ours, 0.95, Ratio.of([value / allowed for value in values])
        ),
    ]


def _neighbours(samples: Samples, ours: str, wheel: str) -> list[Verdict]:
    """How many times the wheel's, and how much at most."""
    bars = {"neighbour": (1.5, 5000), "neighbour-events": (1.5, 5000), "loop-lag": (1.0, 7000)}
    verdicts = []
    for scenario, (times, most_us) in bars.items():
        ratio = samples.ratio(scenario, ours, wheel, "p99_us")
        verdicts.append(_ratio_at_most(f"{scenario} p99 against {wheel}", ours, times, ratio))
        verdicts.append(_at_most(f"{scenario} p99", ours, most_us, samples.median(scenario, ours, "p99_us"), _ms))
    return verdicts


def _small_footprint(samples: Samples, ours: str, wheel: str) -> list[Verdict]:
    cold, rss = (
        samples.ratio("cold-start", ours, wheel, "p50_us"),
        samples.ratio("work-10k", ours, wheel, "peak_rss_mb"),
    )
    return [
        _ratio_at_most(f"cold-start against {wheel}", ours, 1.0, cold),
        _ratio_at_most(f"work-10k peak RSS against {wheel}", ours, 1.2, rss),
    ]


def _latency(samples: Samples, ours: str, wheel: str) -> list[Verdict]:
    return [
        _ratio_at_most(
            f"latency {name} against {wheel}", ours, 0.5, samples.ratio("latency", ours, wheel, f"{name}_us")
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
            _ms,
        )
        for name, most in bars.items()
    ]
    earliest = min(samples.values("lateness", ours, "min_us"), default=None)
    early = None if earliest is None else max(0.0, -earliest)
    return [*late, _at_most("delayed jobs are never early", ours, 0, early, _ms)]


def _waits(samples: Samples, ours: str) -> list[Verdict]:
    median_us = samples.median("wait-1000", ours, "p50_us")
    claim = "p50 from a handler's end to the caller that waits, 1,000 waits"
    return [_at_most(claim, ours, 5000, median_us, _ms)]


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
    return [
        _ratio_at_most(f"Redis bytes per waiting job against {WHEEL}", OURS, 1.0, samples.ratio("memory", OURS, WHEEL))
    ]
