"""What a round of `make chaos` with --topology calls bad."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.chaos.__main__ import read_arguments
from tests.chaos.faults import FAULTS as ALL
from tests.chaos.topologies import Outcome, find_runs_without_reason
from tests.chaos.topology_faults import FAULTS
from tests.support.traffic import Traffic

GOOD = Outcome(
    topology="sentinel",
    fault="kill",
    servers_s=2.0,
    gap_s=2.9,
    added=1000,
    lost=0,
    twice=0,
    without_reason=[],
    elections=1,
    wrongly_refused=0,
    refused=Counter(),
    unexpected=[],
    slowest_add_s=0.5,
    adds_a_second=2000.0,
    stalled_s=0.0,
)


def test_a_round_within_its_bound_is_good() -> None:
    assert GOOD.problems == []


@pytest.mark.parametrize(
    ("wrong", "problem"),
    (
        (replace(GOOD, gap_s=3.1), "nothing flowed for 3.10 s"),
        (replace(GOOD, fault="failover", gap_s=0.6), "the bound is 0.50 s"),
        (replace(GOOD, slowest_add_s=1.0), "an add with 0.4 s took 1.00 s"),
        (replace(GOOD, lost=1), "1 acked adds are lost"),
        (replace(GOOD, lost=1, elections=2), "1 acked adds are lost"),
        (replace(GOOD, wrongly_refused=1, elections=2), "1 jobs ran that were not added"),
    ),
)
def test_a_round_that_breaks_a_promise_says_which(wrong: Outcome, problem: str) -> None:
    assert problem in "; ".join(wrong.problems)


@pytest.mark.parametrize(
    ("added_at", "ran_at", "has_reason"),
    (
        (99.9, 99.9, True),  # a moment before the fault, at 100
        (101.9, 101.9, True),  # by the former master
        (90.0, 101.9, True),  # a delayed job
        (98.0, 98.0, False),  # its ack has long been at the replicas
        (103.0, 103.0, False),  # the next master leads since 102
    ),
)
def test_a_job_has_a_reason_to_run_twice_if_its_ack_can_have_been_lost(
    added_at: float, ran_at: float, has_reason: bool
) -> None:
    traffic = Traffic("q", "redis://127.0.0.1:1")
    traffic.runs[1], traffic.runs_at[1], traffic.answered_at[1] = 2, [ran_at, 105.0], added_at
    kill, rotate = FAULTS["sentinel"]["kill"], FAULTS["sentinel"]["rotate"]
    assert (find_runs_without_reason(traffic, kill, 100.0, 102.0) == []) == has_reason
    assert find_runs_without_reason(traffic, rotate, 100.0, 102.0) != []


@pytest.mark.parametrize(
    ("words", "rounds"),
    ((["--topology", "cluster"], 1), (["--topology", "name", "--rounds", str(len(ALL))], len(ALL)), ([], len(ALL))),
)
def test_each_fault_of_a_topology_has_as_many_rounds_as_asked_for(words: list[str], rounds: int) -> None:
    """Elsewhere it is the number of all rounds, by default one of each fault."""
    assert read_arguments(words).rounds == rounds
