"""A worker reads ahead as much as it will start soon, judged by its own speed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pychasqui._core.limits import MAX_AHEAD, PREFETCH_S, READ_BATCH
from pychasqui._core.pace import EntrySizeEstimate, PaceEstimate


def run_steadily(
    estimate: PaceEstimate, per_second: float, seconds: float, *, start: float = 0.0, finished: int = 0
) -> int:
    """Measure every 10 ms a worker that finishes `per_second` jobs; returns how many it has finished."""
    for step in range(1, int(seconds * 100) + 1):
        estimate.record_finished_if_time_passed(finished + int(per_second * step / 100), start + step / 100)
    return finished + int(per_second * seconds)


def test_a_worker_that_has_finished_nothing_reads_nothing_ahead() -> None:
    assert PaceEstimate(0.0).estimate_jobs_to_prefetch() == 0


@pytest.mark.parametrize("per_second", (50, 200, 1000, 5000))
def test_a_steady_worker_reads_ahead_what_it_starts_within_the_prefetch_time(per_second: int) -> None:
    estimate = PaceEstimate(0.0)
    run_steadily(estimate, per_second, 1.0)
    assert estimate.estimate_jobs_to_prefetch() == pytest.approx(per_second * PREFETCH_S, rel=0.2, abs=1)


def test_a_slow_worker_reads_nothing_ahead() -> None:
    estimate = PaceEstimate(0.0)
    for finished in range(1, 20):
        estimate.record_finished_if_time_passed(finished, finished * 0.5)
        assert estimate.estimate_jobs_to_prefetch() == 0


def test_the_estimate_of_a_very_fast_worker_is_bounded() -> None:
    estimate = PaceEstimate(0.0)
    run_steadily(estimate, 10_000_000, 1.0)
    assert estimate.estimate_jobs_to_prefetch() == MAX_AHEAD


def test_an_idle_spell_is_forgotten() -> None:
    estimate = PaceEstimate(0.0)
    finished = run_steadily(estimate, 5000, 1.0)
    estimate.record_finished_if_time_passed(finished, 11.0)
    assert estimate.estimate_jobs_to_prefetch() < 10


def test_the_estimate_falls_soon_after_the_handler_slows_down() -> None:
    estimate = PaceEstimate(0.0)
    finished = run_steadily(estimate, 5000, 1.0)
    run_steadily(estimate, 10, 0.5, start=1.0, finished=finished)
    assert estimate.estimate_jobs_to_prefetch() <= 2


def test_stretches_too_short_to_judge_change_nothing() -> None:
    estimate = PaceEstimate(0.0)
    run_steadily(estimate, 1000, 1.0)
    before = estimate.estimate_jobs_to_prefetch()
    estimate.record_finished_if_time_passed(1_000_000, 1.0005)
    assert estimate.estimate_jobs_to_prefetch() == before


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 100_000)), max_size=50))
def test_the_estimate_stays_within_its_bounds(steps: list[tuple[float, int]]) -> None:
    estimate, now, finished = PaceEstimate(0.0), 0.0, 0
    for elapsed, more in steps:
        now, finished = now + elapsed, finished + more
        estimate.record_finished_if_time_passed(finished, now)
        assert 0 <= estimate.estimate_jobs_to_prefetch() <= MAX_AHEAD


class TestEntrySize:
    def test_an_unknown_size_lets_nothing_fit_but_a_read_may_wait_for_many(self) -> None:
        size = EntrySizeEstimate()
        assert (size.estimate_bytes(1) > 2**60, size.estimate_bytes(0), size.count_entries_to_wait_for(10)) == (
            True,
            0.0,
            READ_BATCH,
        )

    def test_the_first_batch_says_what_entries_weigh(self) -> None:
        size = EntrySizeEstimate()
        size.record_entries(10, 1000)
        assert (size.estimate_bytes(7), size.count_entries_to_wait_for(1000), size.count_entries_to_wait_for(1)) == (
            700.0,
            10,
            1,
        )

    def test_large_entries_are_remembered_for_a_while(self) -> None:
        size = EntrySizeEstimate()
        size.record_entries(1, 2**20)
        size.record_entries(1000, 100_000)
        assert size.estimate_bytes(1) == 0.75 * 2**20
        for _ in range(40):
            size.record_entries(1000, 100_000)
        assert size.estimate_bytes(1) == 100.0

    def test_no_entries_say_nothing(self) -> None:
        size = EntrySizeEstimate()
        size.record_entries(0, 0)
        assert not size.is_known
