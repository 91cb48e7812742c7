"""A failed job runs again after a delay or is dead for a reason."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pychasqui._core.failure import read_failure
from pychasqui._core.outcome import Dead, FailedRun, Retry, decide_retry_or_dead, find_max_attempts, make_failed_run
from pychasqui._core.retry_options import BackoffSpec, RetryOverride, RetryPolicy
from pychasqui.errors import InvalidArgument, InvalidType, RetryLater, Snooze, UnrecoverableError
from tests.support.jobs import failed_job

POLICY = RetryPolicy(initial_ms=100, max_ms=30_000, multiplier=2.0, jitter_ms=0)


def verdict(error: BaseException, attempt: int = 0, retry: RetryOverride | None = None, max_attempts: int = 3) -> Any:
    return decide_retry_or_dead(
        failed_job(attempt, retry), read_failure(error), max_attempts, POLICY, lambda spread: spread - 1
    )


class TestJudge:
    def test_a_failure_with_runs_left_is_a_retry(self) -> None:
        assert verdict(LookupError(), attempt=0) == Retry(100)
        assert verdict(LookupError(), attempt=1) == Retry(200)

    def test_the_last_run_is_the_last(self) -> None:
        assert verdict(LookupError(), attempt=2) == Dead("retries_exhausted")
        assert verdict(LookupError(), attempt=9) == Dead("retries_exhausted")

    @pytest.mark.parametrize("max_attempts", (0, 1))
    def test_one_attempt_is_the_least(self, max_attempts: int) -> None:
        assert verdict(LookupError(), max_attempts=max_attempts) == Dead("retries_exhausted")

    def test_a_jobs_own_number_of_runs_wins(self) -> None:
        assert verdict(LookupError(), attempt=3, retry=RetryOverride(5)) == Retry(800)
        assert verdict(LookupError(), attempt=0, retry=RetryOverride(1)) == Dead("retries_exhausted")
        assert verdict(LookupError(), attempt=0, retry=RetryOverride(0)) == Dead("retries_exhausted")
        assert verdict(LookupError(), attempt=1, retry=RetryOverride(None)) == Retry(200)

    def test_a_jobs_own_backoff_wins(self) -> None:
        assert verdict(LookupError(), retry=RetryOverride(None, BackoffSpec("fixed", 7))) == Retry(7)
        assert verdict(LookupError(), retry=RetryOverride(None, BackoffSpec("fixed", 7, jitter_ms=4))) == Retry(10)

    def test_an_unrecoverable_error_is_dead_at_once(self) -> None:
        class Hopeless(UnrecoverableError):
            pass

        assert verdict(UnrecoverableError()) == Dead("unrecoverable")
        assert verdict(Hopeless(), retry=RetryOverride(99)) == Dead("unrecoverable")
        assert verdict(UnrecoverableError(), attempt=2) == Dead("unrecoverable")

    @pytest.mark.parametrize("error", (asyncio.CancelledError(), TimeoutError(), StopAsyncIteration(), MemoryError()))
    def test_any_other_error_is_retried(self, error: BaseException) -> None:
        assert verdict(error) == Retry(100)

    def test_a_handler_can_name_its_own_delay(self) -> None:
        assert verdict(RetryLater(2.5)) == Retry(2500)
        assert verdict(RetryLater(timedelta(minutes=1))) == Retry(60_000)
        assert verdict(RetryLater(0)) == Retry(0)
        assert verdict(RetryLater(86_400 * 365)) == Retry(31_536_000_000), "no bound of the policy holds for it"

    def test_a_retry_with_its_own_delay_uses_up_an_attempt_too(self) -> None:
        assert verdict(RetryLater(1), attempt=2) == Dead("retries_exhausted")

    @pytest.mark.parametrize("delay", (-1, float("nan"), float("inf"), timedelta(seconds=-1)))
    def test_a_delay_that_is_none_is_refused_where_it_is_raised(self, delay: Any) -> None:
        with pytest.raises(InvalidArgument, match="delay"):
            RetryLater(delay)

    @pytest.mark.parametrize("delay", ("1", None, True, [1]))
    def test_a_delay_of_another_type_too(self, delay: Any) -> None:
        with pytest.raises(InvalidType, match="delay"):
            RetryLater(delay)

    def test_a_delay_beyond_all_bounds_is_refused_by_name(self) -> None:
        with pytest.raises(InvalidArgument, match="delay"):
            RetryLater(1.7e308)

    def test_a_subclass_that_names_no_delay_is_a_failure_like_another(self) -> None:
        class Sloppy(RetryLater):
            def __init__(self) -> None:
                """Without calling the one above."""

        assert verdict(Sloppy()) == Retry(100)

    def test_runs_allowed_are_the_jobs_own_or_the_workers(self) -> None:
        assert find_max_attempts(failed_job(), 3) == 3
        assert find_max_attempts(failed_job(retry=RetryOverride(None)), 3) == 3
        assert find_max_attempts(failed_job(retry=RetryOverride(0)), 3) == 0
        assert find_max_attempts(failed_job(retry=RetryOverride(9)), 3) == 9


class TestSnooze:
    def test_a_snooze_uses_up_no_attempt(self) -> None:
        assert verdict(Snooze(2.5)) == Retry(2500, uses_up_attempt=False)
        assert verdict(Snooze(timedelta(minutes=1)), attempt=9, retry=RetryOverride(1)) == Retry(60_000, False)

    def test_a_snooze_beyond_its_limit_is_dead(self) -> None:
        failure = read_failure(Snooze(1, limit=2))
        verdicts = [
            decide_retry_or_dead(failed_job(), failure, 3, POLICY, lambda spread: 0, snoozes) for snoozes in (1, 2, 3)
        ]
        assert verdicts == [Retry(1000, False), Dead("retries_exhausted"), Dead("retries_exhausted")]

    @pytest.mark.parametrize("limit", (-1, 10**9))
    def test_a_limit_out_of_its_bounds_is_refused(self, limit: int) -> None:
        with pytest.raises(InvalidArgument, match="limit"):
            Snooze(1, limit)

    @pytest.mark.parametrize("limit", ("1", None, True))
    def test_a_limit_of_another_type_is_refused(self, limit: Any) -> None:
        with pytest.raises(InvalidType, match="limit"):
            Snooze(1, limit)

    def test_a_delay_of_another_type_is_refused(self) -> None:
        with pytest.raises(InvalidType, match="delay"):
            Snooze("1")  # type: ignore[arg-type]

    def test_a_subclass_that_names_neither_delay_nor_limit_is_a_failure_like_another(self) -> None:
        class Sloppy(Snooze):
            def __init__(self) -> None:
                """Without calling the one above."""

        assert verdict(Sloppy()) == Retry(100)


def test_a_failed_run_keeps_numbers_and_texts_but_neither_the_error_nor_its_frames() -> None:
    failed = failed_job(attempt=2)
    failed.started_at, failed.ended_at = 10.0, 10.25
    run = make_failed_run(failed, read_failure(LookupError("no such customer")))
    assert run == FailedRun(3, 250_000, "err", "LookupError", "no such customer")
    assert make_failed_run(failed, read_failure(asyncio.CancelledError())).kind == "panic"
