"""All that can happen between two workers and two jobs: nothing is lost, doubled, miscounted or stuck."""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import le

import pytest

from tests.model.protocol import FLAWS, MAX_ATTEMPTS, Budget, CounterExample, Found, Protocol, search

IS_LONG = "CHASQUI_MODEL_EXAMPLES" in os.environ

BUDGETS = [
    Budget(crashes=2, lost=1, departures=1),
    Budget(crashes=1, pauses=1),
    Budget(lost=1, pauses=1, departures=1),
]
if IS_LONG:  # more than any of the flaws below needs, and minutes: `make model`
    BUDGETS += [Budget(crashes=1, lost=1, pauses=1), Budget(crashes=2, pauses=1)]
    BUDGETS += [
        Budget(crashes=2, lost=1, pauses=1, departures=1),
        Budget(crashes=1, pauses=2),
        Budget(lost=1, pauses=2),
    ]


def is_found(flaw: str, budget: Budget) -> bool:
    try:
        search_all(budget, flaw)
    except CounterExample:
        return True
    return False


def search_all(budget: Budget, *flaws: str) -> Found:
    return search(Protocol(frozenset(flaws)), budget)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_every_invariant_holds_in_every_state(budget: Budget, record_property: Callable[[str, int], None]) -> None:
    found = search_all(budget)
    record_property("states", found.states)
    record_property("steps", found.steps)
    assert found.states > 1000


def test_a_search_without_faults_finds_few_states() -> None:
    assert search_all(Budget()).states < 100


# The min_fields faults that bring each flaw to light, and what it then looks like.
LIGHT = {
    "no gate": (Budget(lost=1), "in 2 places"),
    "no owner": (Budget(pauses=1), "as if it were"),
    "fence by owner only": (Budget(crashes=1, pauses=1), "as if it were"),
    "what came back is not looked for": (Budget(crashes=1, pauses=1), "never come to its end"),
    "runs beside itself": (Budget(pauses=1, departures=1), "twice at once in one worker"),
    "an earlier life counts for nothing": (Budget(crashes=1), "has used up 1 runs is started as if it were 0"),
    "an earlier life counts twice": (Budget(crashes=1, lost=1), "has used up 1 runs is buried as if they were all"),
    "write, then ack": (Budget(), "in 2 places"),
    "ack, then write": (Budget(), "in 0 places"),
    "steals back": (Budget(pauses=1), "as if it were"),
    "no comparison": (Budget(pauses=1), "as if it were"),
    "count off by one": (Budget(crashes=1), "has used up 1 runs is started as if it were 0"),
    "release counts": (Budget(departures=1), "has used up 0 runs is started as if it were 1"),
    "name goes with entries": (Budget(lost=1, departures=1), "never come to its end"),
    "only old entries are looked at": (Budget(pauses=1), "as if it were"),
    "lease before news": (Budget(pauses=1), "as if it were"),
    "orphans are not looked for": (Budget(crashes=1, lost=1), "never come to its end"),
    "relieves itself": (Budget(pauses=1), "twice at once in one worker"),
    "looks with old eyes": (Budget(crashes=1, lost=1), "the same delivery twice"),
}


def test_the_faults_that_bring_a_flaw_to_light_are_all_searched_without_it() -> None:
    for budget, _ in LIGHT.values():
        assert any(all(map(le, budget, searched)) for searched in BUDGETS), budget


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_found(flaw: str) -> None:
    budget, what = LIGHT[flaw]
    with pytest.raises(CounterExample) as example:
        search_all(budget, flaw)
    assert what in example.value.what


@pytest.mark.parametrize("flaw", [flaw for flaw, (budget, _) in LIGHT.items() if sum(budget)])
def test_no_fewer_faults_would_do(flaw: str) -> None:
    """Each flaw needs the faults that the catalogue names."""
    budget = LIGHT[flaw][0]
    fewer = [budget._replace(**{fault: count - 1}) for fault, count in budget._asdict().items() if count]
    assert [less for less in fewer if is_found(flaw, less)] == []


def test_a_counter_example_shows_its_steps() -> None:
    with pytest.raises(CounterExample) as example:
        search_all(Budget(crashes=1), "count off by one")
    assert example.value.path == ["worker 0 reads job 0", "worker 0 crashes", "worker 0 takes over from 2"]


def test_a_job_may_crash_its_worker_more_often_than_it_may_run() -> None:
    """The model allows for it, so that the bound on runs is held against something."""
    assert BUDGETS[0].crashes >= MAX_ATTEMPTS
