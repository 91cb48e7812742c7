"""Adds up the metrics of several processes, each in the text format of Prometheus, to one page.

Counters and histograms are added up, and so are gauges, but for those in LARGEST and SMALLEST. What a process had
counted when it ended stays in the sums: a counter must not go down. Of their jobs it keeps MAX_NAMES names of a queue
apart, and counts the others together, as a process does: names that never end would fill the memory and the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from .text_format import MAX_NAMES, OTHER, format_number

# Gauges of which the sum means nothing: how late one of them is, versions, and what the leader sees of the queue.
LARGEST = frozenset(
    {
        "chasquimq_build_info",
        "chasquimq_delayed_zset_depth",
        "chasquimq_promoter_oldest_pending_lag_ms",
        "chasquimq_promoter_oldest_pending_lag_seconds",
        "chasquimq_worker_loop_lag_seconds",
    }
)
SMALLEST = frozenset({"chasquimq_worker_ready"})  # 1 if all of them are
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass
class Family:
    """A metric with its lines: the name with labels, and the number."""

    name: str
    about: str
    kind: str = "untyped"
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def is_cumulative(self) -> bool:
        return self.kind in ("counter", "histogram")

    def merge(self, other: Family) -> None:
        for key, number in other.numbers.items():
            mine = self.numbers.get(key)
            self.numbers[key] = number if mine is None else self._merge_numbers(mine, number)

    def _merge_numbers(self, mine: float, other: float) -> float:
        if self.name in LARGEST:
            return max(mine, other)
        return min(mine, other) if self.name in SMALLEST else mine + other

    def render_lines(self) -> list[str]:
        head = [f"# HELP {self.name} {self.about}", f"# TYPE {self.name} {self.kind}"]
        return [*head, *(f"{key} {format_number(number)}" for key, number in self.numbers.items())]


def read_families(text: str) -> list[Family]:
    """Reads a page of our own: each metric begins with its HELP, and has its TYPE behind that.

    Skips lines that end in no number.
    """
    families: list[Family] = []
    for line in text.split("\n"):  # a label may hold what splitlines() takes for the end of a line
        if line.startswith("# HELP "):
            name, _, about = line[len("# HELP ") :].partition(" ")
            families.append(Family(name, about))
        elif line.startswith("# TYPE ") and families:
            families[-1].kind = line.rpartition(" ")[2]
        elif line and families and not line.startswith("#"):
            key, _, number = line.rpartition(" ")
            with suppress(ValueError):
                families[-1].numbers[key] = float(number)
    return families


class EndedNames:
    """The names of jobs, of each queue, under which the counts of ended processes are kept."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}

    def remember_name_or_replace_if_full(self, key: str) -> str:
        """Returns the name and labels of a line, with OTHER for the name of a job that is one too many."""
        labels = dict(_LABEL.findall(key))
        name = labels.get("name", OTHER)
        known = self._known.setdefault(labels.get("queue", ""), {OTHER})
        if name in known or len(known) <= MAX_NAMES:
            known.add(name)
            return key
        return _LABEL.sub(lambda found: f'name="{OTHER}"' if found[1] == "name" else found[0], key)


class MergedMetrics:
    """render() the pages of the processes that run, and what was kept of those that have ended."""

    def __init__(self) -> None:
        self._retired: dict[str, Family] = {}
        self._names = EndedNames()

    def add_counts_of_ended_process(self, text: str) -> None:
        """Keeps what a process had counted."""
        for family in (family for family in read_families(text) if family.is_cumulative):
            for key, number in family.numbers.items():
                kept = {self._names.remember_name_or_replace_if_full(key): number}
                _merge_families(self._retired, [Family(family.name, family.about, family.kind, kept)])

    def render(self, texts: Iterable[str], draining: Iterable[str] = ()) -> str:
        """Renders the sums. Processes that drain are not ready, and need not be."""
        merged: dict[str, Family] = {}
        for text in texts:
            _merge_families(merged, read_families(text))
        for text in draining:
            _merge_families(merged, (family for family in read_families(text) if family.name not in SMALLEST))
        _merge_families(merged, self._retired.values())
        return "".join(f"{line}\n" for family in merged.values() for line in family.render_lines())


def _merge_families(merged: dict[str, Family], families: Iterable[Family]) -> None:
    for family in families:
        if family.name not in merged:
            merged[family.name] = Family(family.name, family.about, family.kind)
        merged[family.name].merge(family)
