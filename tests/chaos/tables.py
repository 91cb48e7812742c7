"""The figures of many rounds: one line for each fault, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from tests.chaos.faults import FAULTS
from tests.chaos.round import Report
from tests.chaos.verdict import UNEXPLAINED

COLUMNS = ("fault", "rounds", "bad", "jobs", "done", "dead", "lost", "stuck", "twice", "unexpl", "overlap", "recov s")


def summarize(reports: Iterable[Report]) -> list[dict[str, Any]]:
    """One row for each fault, then one for all of them."""
    by_fault: dict[str, list[Report]] = {}
    everything: list[Report] = []
    for report in sorted(reports, key=lambda report: list(FAULTS).index(report.order.fault)):
        by_fault.setdefault(report.order.fault, []).append(report)
        everything.append(report)
    return [_row(name, group) for name, group in [*by_fault.items(), ("all", everything)]]


def _row(name: str, reports: list[Report]) -> dict[str, Any]:
    figures = [report.figures for report in reports]
    reasons: Counter[str] = sum((each.reruns for each in figures), Counter())
    return {
        "fault": name,
        "rounds": len(reports),
        "bad": sum(bool(report.problems) for report in reports),
        "jobs": sum(each.jobs for each in figures),
        "done": sum(each.done for each in figures),
        "dead": sum(each.dead for each in figures),
        "lost": sum(len(each.lost) for each in figures),
        "stuck": sum(len(each.stuck) for each in figures),
        "twice": sum(reasons.values()),
        "unexpl": reasons[UNEXPLAINED],
        "overlap": sum(len(each.overlaps) for each in figures),
        "recov s": round(max((each.recovery_s for each in figures), default=0.0), 1),
        "two places": sum(len(each.two_places) for each in figures),
        "over budget": sum(len(each.over_budget) for each in figures),
        "reasons": dict(reasons),
    }


def render(rows: list[dict[str, Any]]) -> str:
    widths = [max(len(column), *(len(str(row[column])) for row in rows)) for column in COLUMNS]

    def line(cells: Iterable[Any]) -> str:
        return "  ".join(
            str(cell).ljust(width) if position == 0 else str(cell).rjust(width)
            for position, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )

    return "\n".join([line(COLUMNS), *(line(row[column] for column in COLUMNS) for row in rows)])


def as_json(report: Report) -> dict[str, Any]:
    figures = {**vars(report.figures), "reruns": dict(report.figures.reruns)}
    facts = {"seconds": round(report.seconds, 2), "problems": report.problems, "figures": figures}
    return {**asdict(report.order), **facts}
