"""From samples to what people read: tables for the terminal and for Markdown, and one JSON file with everything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.roster import BY_NAME, OURS, OURS_UVLOOP, PEERS, WHEEL, WHEEL_UVLOOP
from benchmarks.runner import Sample
from benchmarks.scenarios import BY_KEY, Scenario
from benchmarks.verdict import Ratio, Samples, Verdict

COMPARED_WITH = {
    OURS: (),
    OURS_UVLOOP: (),
    WHEEL: (OURS,),
    WHEEL_UVLOOP: (OURS_UVLOOP,),
}  # the others with both of ours


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    section: str = ""

    def as_text(self) -> str:
        """Aligned columns: words to the left, numbers to the right."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self.columns))]
        printable = [
            "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
            for line in lines
        ]
        return "\n".join([self.title, "-" * len(self.title), *(line.rstrip() for line in printable)]) + "\n"

    def as_markdown(self) -> str:
        lines = ["| " + " | ".join(line) + " |" for line in [self.columns, *self.rows]]
        rule = "| --- |" + " ---: |" * (len(self.columns) - 1)
        return "\n".join([f"### {self.title}", "", lines[0], rule, *lines[1:]]) + "\n"


@dataclass(frozen=True)
class Column:
    """One number of a result: how it is headed and printed, and whether it is compared. `scale` divides it first."""

    head: str
    number: str
    form: str = ",.0f"
    scale: float = 1.0
    is_compared: bool = False
    is_needed: bool = True  # an empty column is left out unless it is

    def text(self, scenario: str, peer: str, samples: Samples) -> str:
        median = samples.median(scenario, peer, self.number)
        return "" if median is None else format(median / self.scale, self.form)


RATE = Column("jobs/s", "value", is_compared=True)
RATE_COLUMNS = (
    RATE,
    Column("CPU us/job", "cpu_us", ",.2f", is_needed=False),
    Column("Redis CPU us/job", "redis_us", ",.2f", is_needed=False),
    Column("peak RSS MB", "peak_rss_mb", ",.0f", is_needed=False),
    Column("threads", "threads", is_needed=False),
)


def _times(unit: float, form: str) -> tuple[Column, ...]:
    return (
        Column("p50", "p50_us", form, unit, is_compared=True),
        Column("p90", "p90_us", form, unit),
        Column("p99", "p99_us", form, unit, is_compared=True),
        Column("max", "max_us", form, unit),
    )


COLUMNS = {
    "latency": ("microseconds", (*_times(1, ",.0f"), Column("threads", "threads", is_needed=False))),
    "lateness": ("milliseconds", (Column("earliest", "min_us", ",.1f", 1000), *_times(1000, ",.1f"))),
    "wait": (
        "milliseconds",
        (
            *_times(1000, ",.1f"),
            Column("in all", "seconds", ",.1f", 0.001),
            Column("CPU of the caller", "cpu_seconds", ",.1f", 0.001),
        ),
    ),
    "neighbour": (
        "microseconds",
        (
            Column("p50 alone", "alone_p50_us"),
            Column("p99 alone", "alone_p99_us"),
            *_times(1, ",.0f"),
            Column("jobs/s meanwhile", "rate"),
        ),
    ),
    "lag": (
        "microseconds",
        (
            Column("p50", "p50_us"),
            Column("p90", "p90_us"),
            Column("p99", "p99_us", is_compared=True),
            Column("max", "max_us"),
            Column("jobs/s meanwhile", "rate"),
        ),
    ),
    "cold": (
        "milliseconds",
        (
            Column("p50", "p50_us", ",.0f", 1000, is_compared=True),
            Column("fastest", "min_us", ",.0f", 1000),
            Column("slowest", "max_us", ",.0f", 1000),
            Column("an empty program", "empty_us", ",.0f", 1000),
        ),
    ),
    "memory": ("", (Column("bytes/job", "value", ",.1f", is_compared=True), Column("jobs waiting", "jobs"))),
    "backlog": (
        "",
        (
            Column("us/job at 10k", "small_us", ",.2f"),
            Column("at 1M", "large_us", ",.2f"),
            Column("1M / 10k", "value", ",.2f"),
            Column("CPU us/job at 10k", "small_cpu_us", ",.2f"),
            Column("at 1M", "large_cpu_us", ",.2f"),
            Column("peak RSS MB at 10k", "small_rss_mb", ",.1f"),
            Column("at 1M", "large_rss_mb", ",.1f"),
        ),
    ),
}


def tables(scenarios: Sequence[Scenario], samples: Samples) -> list[Table]:
    """One table for each scenario that was measured."""
    made = [_table(scenario, samples) for scenario in scenarios]
    return [table for table in made if table.rows]


def ranking(scenario: str, samples: Samples, *, number: str = "value", most_first: bool = True) -> list[str]:
    """The peers that have this number, best first."""
    found = {peer.name: samples.median(scenario, peer.name, number) for peer in PEERS}
    measured = {name: value for name, value in found.items() if value is not None}
    return sorted(measured, key=lambda name: measured[name], reverse=most_first)


def _table(scenario: Scenario, samples: Samples) -> Table:
    unit, columns = COLUMNS.get(scenario.kind, ("", RATE_COLUMNS))
    number = "value" if scenario.is_rate or scenario.kind in ("memory", "backlog") else "p50_us"
    names = ranking(scenario.key, samples, number=number, most_first=scenario.is_rate)
    shown = [c for c in columns if c.is_needed or any(samples.values(scenario.key, name, c.number) for name in names)]
    heads, rows = [unit], [[BY_NAME[name].title] for name in names]
    for column in shown:
        heads.append(column.head)
        for name, row in zip(names, rows, strict=True):
            row.append(column.text(scenario.key, name, samples))
        if column is RATE:
            heads.append("lowest to highest")
            for name, row in zip(names, rows, strict=True):
                values = samples.values(scenario.key, name)
                row.append(f"{min(values):,.0f} to {max(values):,.0f}")
    for column in columns:
        for ours in (OURS, OURS_UVLOOP) if column.is_compared else ():
            ratios = [_compared(samples, scenario.key, ours, name, column.number) for name in names]
            if any(ratios):
                head = f"{BY_NAME[ours].label} / it"
                heads.append(head if scenario.is_rate else f"{column.head}: {head}")
                for row, ratio in zip(rows, ratios, strict=True):
                    row.append("" if ratio is None else str(ratio))
    return Table(scenario.title, tuple(heads), [tuple(row) for row in rows], scenario.section)


def _compared(samples: Samples, scenario: str, ours: str, peer: str, number: str) -> Ratio | None:
    """Loop by loop for the wheel; the others, which run on what is best for them, with both of ours."""
    return samples.ratio(scenario, ours, peer, number) if ours in COMPARED_WITH.get(peer, (OURS, OURS_UVLOOP)) else None


def verdict_table(verdicts: Iterable[Verdict]) -> Table:
    """Bars that this run says nothing about are only counted."""
    listed = list(verdicts)
    measured = [v for v in listed if v.cleared is not None]
    rows = [(v.claim, BY_NAME[v.peer].label, v.bar, v.measured, "yes" if v.cleared else "NO") for v in measured]
    if rows and (more := len(listed) - len(measured)):
        rows.append((f"{more} more", "", "", "not measured", "-"))
    return Table("what must be shown", ("claim", "peer", "bar", "measured", "cleared"), rows, "Bars of our own")


COMPARED_IN_WORDS = (
    ("value", "jobs/s", True, ("add", "work", "drain", "fire")),
    ("value", "bytes", False, ("memory",)),
    ("p50_us", "p50", False, ("latency", "lateness", "wait", "neighbour", "cold")),
    ("p99_us", "p99", False, ("latency", "lateness", "wait", "neighbour", "lag")),
    ("cpu_us", "CPU a job", False, ("add", "work", "fire")),
    ("redis_us", "Redis CPU a job", False, ("add", "work", "fire")),
    ("peak_rss_mb", "peak memory of the worker", False, ("work",)),
)


def behind(scenarios: Sequence[Scenario], samples: Samples) -> list[str]:
    """Every number in which a peer is ahead of us, in words. The limits, which do nothing, are no peers."""
    lines = []
    for scenario in scenarios:
        for number, what, is_more_better, kinds in COMPARED_IN_WORDS:
            words = []
            for ours in (OURS, OURS_UVLOOP) if scenario.kind in kinds else ():
                ahead = [
                    f"{peer.title} {_how_far(ratio)}"
                    for peer in PEERS
                    if (ratio := _compared(samples, scenario.key, ours, peer.name, number)) and not peer.is_limit
                    if (ratio.median < 1 if is_more_better else ratio.median > 1)
                ]
                words += [f"Ahead of {BY_NAME[ours].label}: {'; '.join(ahead)}."] if ahead else []
            lines += [f"**{scenario.title}, {what}.** {' '.join(words)}"] if words else []
    return lines


def _how_far(ratio: Ratio) -> str:
    return f"{ratio}, which may be chance" if ratio.least < 1 < ratio.most else str(ratio)


def headline(samples: Samples) -> list[str]:
    """What we say of ourselves: everybody as it comes, which for us is with events on."""
    lines = []
    for key, what in (("defaults", "no-op coroutines"), ("defaults-def", "no-op plain functions")):
        for ours in (OURS, OURS_UVLOOP):
            rate = samples.median(key, ours)
            found = {
                peer.name: _compared(samples, key, ours, peer.name, "value") for peer in PEERS if not peer.is_limit
            }
            ratios = [(ratio, BY_NAME[name].title) for name, ratio in found.items() if ratio is not None]
            if rate is None or not ratios:
                continue
            named = sorted(ratios, key=lambda pair: pair[0].median)[:2]
            listed = ", and ".join(f"{ratio} times {title}" for ratio, title in named)
            lines.append(f"{BY_NAME[ours].label}, as it comes: {rate:,.0f} {what} a second, {listed}")
    return lines


def facts(meta: dict[str, Any]) -> list[str]:
    """The run in a few lines: where, when, on what, and what was left out."""
    machine, load = meta["machine"], meta["load"]
    lines = [f"UNOFFICIAL: {meta['unofficial']}"] if meta.get("unofficial") else []
    lines += [
        f"{meta['date']}, commit {meta['commit']}",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['kernel']}",
        f"Redis {meta['redis']}, persistence off but where AOF is named, TCP on loopback; Python {machine['python']}",
        f"rounds: {meta['repeats']}{' (a quick run: its numbers say little)' if meta['quick'] else ''}",
        f"load average before {load['before']:.2f}, after {load['after']:.2f}",
        "data of every job: " + json.dumps(meta["data"]),
    ]
    lines += [f"{name}: {_listed(found)}" for name, found in meta["versions"].items() if found]
    lines += [
        f"measured again on {later['date']}, commit {later['commit'][:8]}, {later['repeats']} rounds: "
        + ", ".join(later["scenarios"])
        for later in meta.get("again", ())
    ]
    lines += [f"not measured: {name} ({why})" for name, why in meta["skipped"].items()]
    return lines + ([f"failed turn: {failure}" for failure in meta["failures"]] or ["failed turns: none"])


def _listed(found: dict[str, str]) -> str:
    return ", ".join(f"{package} {version}" for package, version in found.items())


def write_json(path: Path, meta: dict[str, Any], samples: Iterable[Sample], verdicts: Iterable[Verdict]) -> None:
    """Everything that was measured. A line a sample keeps the file readable and its changes small."""
    lines = ",\n".join("    " + json.dumps(sample.as_json()) for sample in samples)
    judged = ",\n".join("    " + json.dumps(vars(verdict)) for verdict in verdicts)
    head = json.dumps(meta, indent=2).removesuffix("\n}")
    path.write_text(f'{head},\n  "verdict": [\n{judged}\n  ],\n  "samples": [\n{lines}\n  ]\n}}\n', encoding="utf-8")


def renewed(path: Path, meta: dict[str, Any], samples: Sequence[Sample]) -> tuple[dict[str, Any], list[Sample]]:
    """An earlier run with these samples in the place of those of their scenarios."""
    earlier = json.loads(path.read_text(encoding="utf-8"))
    scenarios = sorted({sample.scenario for sample in samples})
    kept = [Sample(**sample) for sample in earlier.pop("samples") if sample["scenario"] not in scenarios]
    del earlier["verdict"]
    later = {"scenarios": scenarios} | {key: meta[key] for key in ("date", "commit", "repeats", "load")}
    again = [
        {**one, "scenarios": left}
        for one in earlier.get("again", ())
        if (left := [key for key in one["scenarios"] if key not in scenarios])
    ]
    failures = [failure for failure in earlier["failures"] if failure.partition(",")[0] not in scenarios]
    more = {
        "failures": failures + meta["failures"],
        "versions": earlier["versions"] | meta["versions"],
        "again": [*again, later],
    }
    if meta.get("unofficial"):
        more["unofficial"] = meta["unofficial"]
    return earlier | more, kept + list(samples)


HOW_TO_READ = """Medians of the rounds. A ratio is the median of the ratios within each round, with the lowest and the
highest of them in parentheses; above 1, pychasqui's number is the larger one. How it is measured, and how to do it on
your machine: `docs/explanation/how-we-measure.md`."""


def write_markdown(
    path: Path, meta: dict[str, Any], scenarios: Sequence[Scenario], samples: Samples, made: Iterable[Table]
) -> None:
    text = ["# Measured", "", *(f"- {line}" for line in headline(samples)), "", HOW_TO_READ]
    text += ["", "## Where another is ahead", "", "The numbers are pychasqui's by theirs.", ""]
    text += [f"- {line}" for line in behind(scenarios, samples)] or ["Nowhere in this run."]
    text += ["", "## The run", "", *(f"- {line}" for line in facts(meta)), ""]
    section = ""
    for table in made:
        if table.section != section:
            section = table.section
            text += [f"## {section}", ""]
        text.append(table.as_markdown())
    path.write_text("\n".join(text), encoding="utf-8")


def drawn(samples: Samples) -> list[tuple[Scenario, str]]:
    """The scenarios that have a panel in the picture, with the number that is shown."""
    found = [(scenario, scenario.drawn) for scenario in BY_KEY.values() if scenario.drawn]
    return [(scenario, number) for scenario, number in found if ranking(scenario.key, samples, number=number)]
