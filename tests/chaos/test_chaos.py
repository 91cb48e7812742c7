"""A short version of `make chaos`: one small round of each fault, four at a time, with a seed of its own."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.round import Order, run_round

TOGETHER = 4
NAMES = list(FAULTS)
GROUPS = [NAMES[start : start + TOGETHER] for start in range(0, len(NAMES), TOGETHER)]


@pytest.mark.parametrize("names", GROUPS, ids="+".join)
async def test_no_job_is_lost_or_run_twice_without_a_reason(names: list[str]) -> None:
    """The rounds run side by side, because a round waits more than it works."""
    orders = [Order(name, seed="1:short", jobs=150, rate=150, lease_ms=900, patience_s=30) for name in names]
    reports = await asyncio.gather(*(run_round(order) for order in orders))
    assert {report.order.fault: report.problems for report in reports if report.problems} == {}
    assert all(report.figures.jobs >= 120 for report in reports)
