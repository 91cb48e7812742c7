"""`python -m benchmarks.plot RESULTS.json PICTURE.png`: one panel a scenario, bars on a log scale, best on top.

Runs in an environment of its own, the only one with matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from benchmarks.report import ranking
from benchmarks.roster import BY_NAME, OURS, OURS_UVLOOP, WHEEL, WHEEL_UVLOOP
from benchmarks.runner import Sample
from benchmarks.scenarios import SCENARIOS
from benchmarks.verdict import Samples

INK, FAINT = "#1c2733", "#8a949e"
COLOURS = {OURS: "#d1495b", OURS_UVLOOP: "#d1495b", WHEEL: "#2e6f95", WHEEL_UVLOOP: "#2e6f95"}
OTHERS, LIMIT = "#b9c2cb", "#edd9a3"


def main(results: str, picture: str) -> None:
    found = json.loads(Path(results).read_text(encoding="utf-8"))
    samples = Samples(Sample(**sample) for sample in found["samples"])
    panels = _panels(samples)
    columns = 3
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(6.4 * columns, 4.6 * rows), squeeze=False)
    for panel, (title, scenario, number, unit, most_first) in zip(axes.flat, panels, strict=False):
        _draw(panel, title, scenario, number, unit, most_first, samples)
    for panel in list(axes.flat)[len(panels) :]:
        panel.axis("off")
    machine = found["machine"]
    height = figure.get_figheight()
    title = f"pychasqui and its peers, {found['date']}"
    figure.text(0.01, 1 - 0.35 / height, title, fontsize=17, color=INK, weight="bold")
    under = f"{machine['cpu']}, {machine['cores']} cores, Redis {found['redis']}, Python {machine['python']}"
    figure.text(
        0.01, 1 - 0.65 / height, f"{under}. Medians; memory is linear, the rest logarithmic.", color=FAINT, fontsize=11
    )
    figure.tight_layout(rect=(0.006, 0, 1, 1 - 0.85 / height), h_pad=2.2, w_pad=2.5)
    figure.savefig(picture, dpi=110)


def _panels(samples: Samples) -> list[tuple[str, str, str, str, bool]]:
    """Title, scenario, number, unit and direction of every panel that has something to show."""
    wanted = [(s.title, s.key, "value", "jobs/s", True) for s in SCENARIOS if s.kind in ("add", "work", "fire")]
    wanted += [
        ("add to handler start, p50", "latency", "p50_us", "us, less is better", False),
        ("add to handler start, p99", "latency", "p99_us", "us, less is better", False),
        ("late by, 1,000 delayed jobs/s, p50", "lateness", "p50_us", "us, less is better", False),
        ("late by, 1,000 delayed jobs/s, p99", "lateness", "p99_us", "us, less is better", False),
        ("handler end to waiter, 1,000 waits, p50", "wait-1000", "p50_us", "us, less is better", False),
        ("handler end to waiter, 1,000 waits, p99", "wait-1000", "p99_us", "us, less is better", False),
        ("Redis bytes per waiting job", "memory", "value", "bytes, less is better", False),
        ("worker, peak resident memory", "work-100", "peak_rss_mb", "MB, less is better", False),
    ]
    return [panel for panel in wanted if ranking(panel[1], samples, number=panel[2])]


def _draw(panel: Axes, title: str, scenario: str, number: str, unit: str, most_first: bool, samples: Samples) -> None:
    names = ranking(scenario, samples, number=number, most_first=most_first)[::-1]
    medians: list[float] = [samples.median(scenario, name, number) or 0.0 for name in names]
    bars = panel.barh(range(len(names)), medians, color=[_colour(name) for name in names], height=0.72)
    for bar, name in zip(bars, names, strict=True):
        if BY_NAME[name].is_limit:
            bar.set_hatch("///")
            bar.set_edgecolor("white")
    _scale(panel, medians)
    for at, median in enumerate(medians):
        panel.text(median, at, f" {median:,.0f}", va="center", fontsize=9, color=INK)
    panel.set_yticks(range(len(names)), [BY_NAME[name].label for name in names], fontsize=9.5, color=INK)
    for tick, name in zip(panel.get_yticklabels(), names, strict=True):
        tick.set_fontweight("bold" if name in (OURS, OURS_UVLOOP) else "normal")
    panel.set_title(f"{title}  ", loc="left", fontsize=12, color=INK, weight="bold")
    panel.set_xlabel(unit, fontsize=9, color=FAINT)
    _quieten(panel)


def _scale(panel: Axes, values: list[float]) -> None:
    """A log scale, unless the values lie so close together that it would only hide that."""
    if max(values) < 5 * min(values):
        panel.set_xlim(0, max(values) * 1.15)
        return
    panel.set_xscale("log")
    panel.set_xlim(min(values) / 2.2, max(values) * 3.4)
    panel.xaxis.set_minor_formatter(NullFormatter())  # over a single decade they would run into each other


def _colour(name: str) -> str:
    return LIMIT if BY_NAME[name].is_limit else COLOURS.get(name, OTHERS)


def _quieten(panel: Any) -> None:
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    panel.spines["bottom"].set_color(FAINT)
    panel.tick_params(axis="y", length=0)
    panel.tick_params(axis="x", colors=FAINT, labelsize=8.5)
    panel.grid(axis="x", color="#e6e9ec", linewidth=0.8)
    panel.set_axisbelow(True)


if __name__ == "__main__":
    main(*sys.argv[1:])
