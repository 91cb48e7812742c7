"""How failed and dead jobs are cut into script calls: by number and by bytes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from pychasqui._core.limits import MAX_JOB_ID_BYTES, OUTCOME_BATCH, OUTCOME_BYTES
from pychasqui._core.outcome import OUTCOME_EXTRA_BYTES, Buried, Rescheduled
from pychasqui._worker.failed_job_mover import MOVES_AT_ONCE, list_first_batches
from tests.support.outcomes import buried, rescheduled


def failed(size: int) -> Rescheduled:
    return rescheduled(b"1-0", member=b"x" * size)


def dead(size: int) -> Buried:
    return buried(b"1-0", letter=[b"d", b"x" * (size - 1)])


def lengths(jobs: list[Any]) -> list[int]:
    return [len(batch) for batch in list_first_batches(jobs)]


def test_small_jobs_are_bounded_by_number() -> None:
    assert lengths([failed(10)] * (OUTCOME_BATCH + 3)) == [OUTCOME_BATCH, 3]
    assert lengths([dead(10)] * 10_000) == [OUTCOME_BATCH] * MOVES_AT_ONCE


def test_large_jobs_are_bounded_by_bytes() -> None:
    half = OUTCOME_BYTES // 2 - OUTCOME_EXTRA_BYTES - 1000
    assert lengths([failed(half)] * 5) == [2, 2, 1]
    assert lengths([dead(half)] * 100) == [2] * MOVES_AT_ONCE


def test_jobs_with_long_ids_travel_in_smaller_numbers() -> None:
    """Each key of a job has its id."""
    long_id = "x" * MAX_JOB_ID_BYTES
    assert max(lengths([replace(failed(10), job_id=long_id)] * 100)) < 10
    assert max(lengths([replace(dead(10), job_id=long_id)] * 100)) < 10


def test_a_job_that_is_larger_travels_alone() -> None:
    assert lengths([failed(10), failed(2 * OUTCOME_BYTES), failed(10)]) == [1, 1, 1]


def test_an_empty_list_is_cut_into_no_batches() -> None:
    assert list_first_batches(list[Rescheduled]()) == []
