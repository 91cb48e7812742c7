"""From samples to what people read: tables for the terminal and for Markdown, and one JSON file with everything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.roster import BY_NAME, PEERS, WHEEL
from benchmarks.runner import Sample
from benchmarks.scenarios import Scenario
from benchmarks.verdict import Samples, Verdict


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

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


def tables(scenarios: Sequence[Scenario], samples: Samples) -> list[Table]:
    """One table a scenario that was measured, and one for the memory of the workers."""
    made = []
    for scenario in scenarios:
        build = {
            "latency": _latency_table,
            "lateness": _lateness_table,
            "wait": _wait_table,
            "memory": _memory_table,
            "backlog": _backlog_table,
        }
        table = build.get(scenario.kind, _rate_table)(scenario, samples)
        made += [table] if table.rows else []
    memory = _rss_table(samples)
    return made + ([memory] if memory.rows else [])


def ranking(scenario: str, samples: Samples, *, number: str = "value", most_first: bool = True) -> list[str]:
    """The peers that have this number, best first."""
    found = {peer.name: samples.median(scenario, peer.name, number) for peer in PEERS}
    measured = {name: value for name, value in found.items() if value is not None}
    return sorted(measured, key=lambda name: measured[name], reverse=most_first)


def _rate_table(scenario: Scenario, samples: Samples) -> Table:
    rows = []
    for name in ranking(scenario.key, samples):
        values = samples.values(scenario.key, name)
        median = samples.median(scenario.key, name) or 0.0
        jobs, cpu = samples.median(scenario.key, name, "jobs"), samples.median(scenario.key, name, "cpu_seconds")
        rows.append(
            (
                BY_NAME[name].label,
                f"{median:,.0f}",
                f"{min(values):,.0f} to {max(values):,.0f}",
                f"{1e6 / median:,.2f}",
                f"{cpu / jobs * 1e6:,.2f}" if cpu is not None and jobs else "",
                _times(samples.ratio(scenario.key, name, WHEEL)),
            )
        )
    return Table(scenario.title, ("", "jobs/s", "lowest to highest", "us/job", "CPU us/job", "x wheel"), rows)


def _latency_table(scenario: Scenario, samples: Samples) -> Table:
    numbers = ("p50_us", "p90_us", "p99_us", "max_us")
    rows = []
    for name in ranking(scenario.key, samples, most_first=False):
        medians = [samples.median(scenario.key, name, number) or 0.0 for number in numbers]
        ratios = [_times(samples.ratio(scenario.key, name, WHEEL, number)) for number in ("p50_us", "p99_us")]
        rows.append((BY_NAME[name].label, *(f"{median:,.0f}" for median in medians), *ratios))
    columns = ("microseconds", "p50", "p90", "p99", "max", "p50 x wheel", "p99 x wheel")
    return Table(scenario.title, columns, rows)


def _lateness_table(scenario: Scenario, samples: Samples) -> Table:
    numbers = ("min_us", "p50_us", "p90_us", "p99_us", "max_us")
    rows = []
    for name in ranking(scenario.key, samples, most_first=False):
        medians = [samples.median(scenario.key, name, number) or 0.0 for number in numbers]
        ratios = [_times(samples.ratio(scenario.key, name, WHEEL, number)) for number in ("p50_us", "p99_us")]
        rows.append((BY_NAME[name].label, *(f"{median / 1000:,.1f}" for median in medians), *ratios))
    columns = ("milliseconds", "earliest", "p50", "p90", "p99", "max", "p50 x wheel", "p99 x wheel")
    return Table(scenario.title, columns, rows)


def _wait_table(scenario: Scenario, samples: Samples) -> Table:
    numbers = ("p50_us", "p90_us", "p99_us", "max_us")
    rows = []
    for name in ranking(scenario.key, samples, most_first=False):
        medians = [samples.median(scenario.key, name, number) or 0.0 for number in numbers]
        spent = [samples.median(scenario.key, name, number) or 0.0 for number in ("seconds", "cpu_seconds")]
        ratios = [_times(samples.ratio(scenario.key, name, WHEEL, number)) for number in ("p50_us", "p99_us")]
        printable = [*(median / 1000 for median in medians), *(seconds * 1000 for seconds in spent)]
        rows.append((BY_NAME[name].label, *(f"{ms:,.1f}" for ms in printable), *ratios))
    columns = ("milliseconds", "p50", "p90", "p99", "max", "in all", "CPU of who waits", "p50 x wheel", "p99 x wheel")
    return Table(scenario.title, columns, rows)


def _memory_table(scenario: Scenario, samples: Samples) -> Table:
    rows = [
        (
            BY_NAME[name].label,
            f"{samples.median(scenario.key, name) or 0:,.1f}",
            f"{samples.median(scenario.key, name, 'jobs') or 0:,.0f}",
            _times(samples.ratio(scenario.key, name, WHEEL), digits=3),
        )
        for name in ranking(scenario.key, samples, most_first=False)
    ]
    return Table(scenario.title, ("", "bytes/job", "jobs waiting", "x wheel"), rows)


def _backlog_table(scenario: Scenario, samples: Samples) -> Table:
    numbers = ("small_us", "large_us", "value", "small_cpu_us", "large_cpu_us", "small_rss_mb", "large_rss_mb")
    rows = [
        (BY_NAME[name].label, *(f"{samples.median(scenario.key, name, number) or 0:,.2f}" for number in numbers))
        for name in ranking(scenario.key, samples, most_first=False)
    ]
    columns = ("", "us/job at 10k", "at 1M", "1M / 10k", "CPU us/job at 10k", "at 1M", "peak RSS MB at 10k", "at 1M")
    return Table(scenario.title, columns, rows)


def _rss_table(samples: Samples) -> Table:
    rows = [
        (BY_NAME[name].label, f"{samples.median('work-100', name, 'peak_rss_mb') or 0:,.1f}")
        for name in ranking("work-100", samples, number="peak_rss_mb", most_first=False)
    ]
    return Table("worker process, resident memory (no-op, concurrency 100)", ("", "peak RSS MB"), rows)


def verdict_table(verdicts: Iterable[Verdict]) -> Table:
    words = {True: "yes", False: "NO", None: "-"}
    rows = [(v.claim, BY_NAME[v.peer].label, v.bar, v.measured, words[v.cleared]) for v in verdicts]
    return Table("what must be shown", ("claim", "peer", "bar", "measured", "cleared"), rows)


def _times(ratio: float | None, *, digits: int = 2) -> str:
    return "" if ratio is None else f"{ratio:,.{digits}f}"


def facts(meta: dict[str, Any]) -> list[str]:
    """The run in a few lines: where, when, on what, and what was left out."""
    machine, load = meta["machine"], meta["load"]
    lines = [
        f"{meta['date']}, {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['kernel']}",
        f"Redis {meta['redis']}, persistence off, TCP on loopback; Python {machine['python']}",
        f"repeats: {meta['repeats']}{' (a quick run: its numbers say little)' if meta['quick'] else ''}",
        f"load average before {load['before']:.2f}, after {load['after']:.2f}",
        "data of every job: " + json.dumps(meta["data"]),
    ]
    lines += [f"{name}: {_listed(found)}" for name, found in meta["versions"].items() if found]
    lines += [f"measured again on {later['date']}: {', '.join(later['scenarios'])}" for later in meta.get("again", ())]
    lines += [f"not measured: {name} ({why})" for name, why in meta["skipped"].items()]
    return lines + [f"failed: {failure}" for failure in meta["failures"]]


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
    later = {"scenarios": scenarios} | {key: meta[key] for key in ("date", "commit", "load")}
    failures = [failure for failure in earlier["failures"] if failure.partition(",")[0] not in scenarios]
    more = {"failures": failures + meta["failures"], "again": [*earlier.get("again", ()), later]}
    return earlier | more, kept + list(samples)


def write_markdown(path: Path, meta: dict[str, Any], made: Iterable[Table]) -> None:
    listed = "\n".join(f"- {line}" for line in facts(meta))
    body = "\n".join(table.as_markdown() for table in made)
    head = "## Measured\n\nMedians; ratios are medians of the ratios within each repeat.\n"
    path.write_text(f"{head}\n{listed}\n\n{body}", encoding="utf-8")
