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

from benchmarks.report import drawn, ranking
from benchmarks.roster import BY_NAME, OURS, OURS_UVLOOP, PEERS, WHEEL, WHEEL_UVLOOP
from benchmarks.runner import Sample
from benchmarks.scenarios import Scenario
from benchmarks.verdict import Samples

INK, FAINT = "#1c2733", "#8a949e"
COLOURS = {OURS: "#d1495b", OURS_UVLOOP: "#d1495b", WHEEL: "#2e6f95", WHEEL_UVLOOP: "#2e6f95"}
OTHERS, LIMIT = "#b9c2cb", "#edd9a3"


def main(results: str, picture: str) -> None:
    found = json.loads(Path(results).read_text(encoding="utf-8"))
    samples = Samples(Sample(**sample) for sample in found["samples"])
    panels = drawn(samples)
    columns = 3
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(6.4 * columns, 4.6 * rows), squeeze=False)
    for panel, (scenario, number) in zip(axes.flat, panels, strict=False):
        _draw(panel, scenario, number, samples)
    for panel in list(axes.flat)[len(panels) :]:
        panel.axis("off")
    machine = found["machine"]
    height = figure.get_figheight()
    runs = [found, *found.get("again", ())]  # a picture may be of several runs: results.md lists what is of which
    names = dict.fromkeys(f"{run['date']}, commit {run['commit'][:7]}" for run in runs)
    title = f"pychasqui and its peers, {'; '.join(names)}"
    title += f" (unofficial: {found['unofficial']})" if found.get("unofficial") else ""
    figure.text(0.01, 1 - 0.35 / height, title, fontsize=17, color=INK, weight="bold")
    under = f"{machine['cpu']}, {machine['cores']} cores, Redis {found['redis']}, Python {machine['python']}"
    under += ". Medians; where values lie far apart the scale is logarithmic. * "
    under += "; ".join(f"{peer.label}: {peer.note}" for peer in PEERS if peer.note)
    figure.text(0.01, 1 - 0.65 / height, under, color=FAINT, fontsize=11)
    figure.tight_layout(rect=(0.006, 0, 1, 1 - 0.85 / height), h_pad=2.2, w_pad=2.5)
    figure.savefig(picture, dpi=110)


def _draw(panel: Axes, scenario: Scenario, number: str, samples: Samples) -> None:
    names = ranking(scenario.key, samples, number=number, most_first=scenario.is_rate)[::-1]
    medians: list[float] = [samples.median(scenario.key, name, number) or 0.0 for name in names]
    bars = panel.barh(range(len(names)), medians, color=[_colour(name) for name in names], height=0.72)
    for bar, name in zip(bars, names, strict=True):
        if BY_NAME[name].is_limit:
            bar.set_hatch("///")
            bar.set_edgecolor("white")
    _scale(panel, medians)
    for at, median in enumerate(medians):
        panel.text(median, at, f" {median:,.0f}", va="center", fontsize=9, color=INK)
    panel.set_yticks(
        range(len(names)),
        [BY_NAME[name].label + (" *" if BY_NAME[name].note else "") for name in names],
        fontsize=9.5,
        color=INK,
    )
    for tick, name in zip(panel.get_yticklabels(), names, strict=True):
        tick.set_fontweight("bold" if name in (OURS, OURS_UVLOOP) else "normal")
    unit = (
        "jobs/s" if scenario.is_rate else "bytes" if scenario.kind == "memory" else f"us, {number.removesuffix('_us')}"
    )
    unit += "" if scenario.is_rate else ", less is better"
    panel.set_title(f"{scenario.title}  ", loc="left", fontsize=12, color=INK, weight="bold")
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
