"""A short version of `make chaos` with --topology: one round of each fault that no integration test brings about.

The bounds of `make chaos` are for a machine that is not busy; here nothing may take seconds longer than it must.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.topologies import run_topology_round

SLACK_S = 4.0
TOGETHER = {
    "passwords": [("cluster", "rotate"), ("sentinel", "rotate"), ("name", "rotate")],
    "lost replicas": [("cluster", "lose-replica"), ("sentinel", "lose-replica")],
    "host names": [("name", "rename-failover"), ("name", "rename-kill")],
}


@pytest.mark.parametrize("rounds", TOGETHER.values(), ids=TOGETHER)
async def test_no_add_is_lost_or_refused_without_a_reason(rounds: list[tuple[str, str]]) -> None:
    """The rounds run side by side, because a round waits more than it works."""
    outcomes = await asyncio.gather(*(run_topology_round(*each, quiet_s=0.2, after_s=0.5) for each in rounds))
    assert [str(outcome) for outcome in outcomes if outcome.broken_promises] == []
    assert [str(outcome) for outcome in outcomes if outcome.gap_s > outcome.bound_s + SLACK_S] == []
    assert all(outcome.added > 40 for outcome in outcomes)
