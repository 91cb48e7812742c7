"""What the programs that measure a thousand workers and the capacity of servers call too much."""

from __future__ import annotations

import pytest

from benchmarks.capacity import compare
from benchmarks.crowd import Crowd, find_missed_bounds
from benchmarks.waits import Call, Model

FEW = Crowd(workers=10, requests=4.3, cpu=0.007, started=1.0, p99_ms=0.8)
MANY = Crowd(workers=1000, requests=0.8, cpu=0.08, started=1.0, p99_ms=1.6)


def test_a_thousand_workers_within_their_bounds_have_missed_none() -> None:
    assert find_missed_bounds([FEW, MANY]) == []


@pytest.mark.parametrize(
    ("many", "said"),
    (
        (MANY._replace(requests=1.1), "1.10 requests a second each, at most 1"),
        (MANY._replace(cpu=0.19), "19.0% of a core of the server, at most 10%"),
        (MANY._replace(p99_ms=2.9), "p99 2.1 ms above that of 10, at most 2"),
        (MANY._replace(started=0.99), "only 99% of the lone adds ran"),
    ),
)
def test_each_bound_that_a_thousand_workers_miss_is_named(many: Crowd, said: str) -> None:
    assert [line for line in find_missed_bounds([FEW, many]) if said in line]


def test_a_prediction_is_compared_with_the_median_of_the_runs() -> None:
    found = compare("load", 10.0, [(9.0, 0.5), (12.0, 0.9), (30.0, 0.7)])
    assert (found.measured, round(found.error, 2), round(found.spread, 2), found.busy) == (12.0, 0.2, 1.75, 0.9)


def test_a_lone_add_waits_for_the_turn_before_its_own_and_for_all_calls_of_its_own() -> None:
    model = Model({"add": 100.0, "lone": 20.0}, turn_us=10.0, trip_us=5.0)
    alone = [Call(1.0, "lone")]
    assert model.answer_times_us(alone) == pytest.approx([35.0])
    # The bulk alone has a turn of 110 us. The lone add comes 60 us later, and shares the next turn with another bulk.
    beside = [Call(1.0, "add"), Call(1.000_06, "lone"), Call(1.000_07, "add")]
    assert model.answer_times_us(beside) == pytest.approx([50.0 + 10.0 + 120.0 + 5.0])
