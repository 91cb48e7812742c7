"""How long a failed job waits: the arithmetic of the official engine, to the millisecond."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pychasqui._core.limits import MAX_U32, MAX_U64
from pychasqui._core.retry_delay import compute_retry_delay_ms
from pychasqui._core.retry_options import BackoffSpec, RetryPolicy
from pychasqui.errors import InvalidArgument, InvalidType
from tests.support.cases import in_one_test

POLICY = RetryPolicy(initial_ms=100, max_ms=30_000, multiplier=2.0, jitter_ms=0)


def no_jitter(spread: int) -> int:
    return 0


def delays(backoff: BackoffSpec | None, attempts: int = 6, policy: RetryPolicy = POLICY) -> list[int]:
    return [compute_retry_delay_ms(policy, backoff, attempt, no_jitter) for attempt in range(attempts)]


class TestPolicy:
    def test_a_job_that_sets_nothing_waits_by_the_workers_policy(self) -> None:
        assert delays(None) == [100, 200, 400, 800, 1600, 3200]

    def test_the_defaults_are_the_official_ones(self) -> None:
        assert RetryPolicy() == RetryPolicy(initial_ms=100, max_ms=30_000, multiplier=2.0, jitter_ms=100)

    def test_the_bound_of_the_policy_holds(self) -> None:
        assert delays(None, attempts=12)[-4:] == [25_600, 30_000, 30_000, 30_000]

    @pytest.mark.parametrize("field", ("initial_ms", "max_ms", "jitter_ms"))
    def test_the_numbers_of_the_policy_are_checked(self, field: str) -> None:
        for value, error in ((-1, InvalidArgument), (2**64, InvalidArgument), (1.5, InvalidType), (True, InvalidType)):
            with pytest.raises(error, match=f"retry.{field}"):
                RetryPolicy(**{field: value})  # type: ignore[arg-type]

    @pytest.mark.parametrize("multiplier", (-1, math.nan, math.inf, 10**400))
    def test_the_multiplier_of_the_policy_is_checked(self, multiplier: float) -> None:
        with pytest.raises(InvalidArgument, match=r"retry\.multiplier"):
            RetryPolicy(multiplier=multiplier)

    def test_a_multiplier_that_is_an_int_is_bounded_at_any_attempt(self) -> None:
        policy = RetryPolicy(initial_ms=100, max_ms=30_000, multiplier=3, jitter_ms=0)
        assert compute_retry_delay_ms(policy, None, 1, no_jitter) == 300
        assert [compute_retry_delay_ms(policy, None, attempt, no_jitter) for attempt in (700, MAX_U32)] == [30_000] * 2


class TestFixed:
    def test_a_fixed_backoff_waits_the_same_before_every_retry(self) -> None:
        assert delays(BackoffSpec("fixed", 50)) == [50] * 6

    def test_a_multiplier_changes_nothing(self) -> None:
        assert delays(BackoffSpec("fixed", 50, multiplier=3.0)) == [50] * 6

    def test_a_fixed_backoff_is_bounded_like_any_other(self) -> None:
        assert delays(BackoffSpec("fixed", 60_000)) == [30_000] * 6
        assert delays(BackoffSpec("fixed", 60_000, max_delay_ms=70_000)) == [60_000] * 6
        assert delays(BackoffSpec("fixed", 60_000, max_delay_ms=5)) == [5] * 6


class TestExponential:
    def test_an_exponential_backoff_grows_by_its_own_multiplier(self) -> None:
        assert delays(BackoffSpec("exponential", 10, multiplier=3.0)) == [10, 30, 90, 270, 810, 2430]

    def test_an_exponential_backoff_without_a_multiplier_uses_the_workers(self) -> None:
        policy = RetryPolicy(initial_ms=1, multiplier=5.0, max_ms=10_000, jitter_ms=0)
        assert delays(BackoffSpec("exponential", 2), policy=policy) == [2, 10, 50, 250, 1250, 6250]

    def test_the_bound_of_the_job_goes_before_the_workers(self) -> None:
        assert delays(BackoffSpec("exponential", 100, max_delay_ms=300)) == [100, 200, 300, 300, 300, 300]
        assert delays(BackoffSpec("exponential", 20_000, max_delay_ms=100_000)) == [
            20_000, 40_000, 80_000, 100_000, 100_000, 100_000,
        ]  # fmt: skip

    def test_fractions_are_cut_off_and_not_rounded(self) -> None:
        assert delays(BackoffSpec("exponential", 1, multiplier=1.5)) == [1, 1, 2, 3, 5, 7]

    def test_a_multiplier_below_1_makes_it_shrink(self) -> None:
        assert delays(BackoffSpec("exponential", 100, multiplier=0.5)) == [100, 50, 25, 12, 6, 3]

    def test_a_multiplier_of_0_leaves_only_the_first(self) -> None:
        assert delays(BackoffSpec("exponential", 100, multiplier=0.0)) == [100, 0, 0, 0, 0, 0]

    @pytest.mark.parametrize("kind", ("linear", "", "FIXED", "exponentiel"))
    def test_an_unknown_kind_counts_as_exponential(self, kind: str) -> None:
        assert delays(BackoffSpec(kind, 10)) == delays(BackoffSpec("exponential", 10))


class TestExtremes:
    @pytest.mark.parametrize("attempt", (50, 1000, 1100, 10_000, MAX_U32))
    def test_the_bound_holds_for_any_number_of_attempts(self, attempt: int) -> None:
        assert compute_retry_delay_ms(POLICY, None, attempt, no_jitter) == 30_000
        assert (
            compute_retry_delay_ms(POLICY, BackoffSpec("exponential", 1, multiplier=1e300), attempt, no_jitter)
            == 30_000
        )

    def test_a_delay_of_zero_stays_zero(self) -> None:
        assert delays(BackoffSpec("exponential", 0, jitter_ms=0)) == [0] * 6
        assert delays(BackoffSpec("fixed", 0, jitter_ms=0)) == [0] * 6
        assert delays(BackoffSpec("exponential", 100, max_delay_ms=0)) == [0] * 6

    def test_the_largest_numbers_that_an_envelope_can_hold(self) -> None:
        assert delays(BackoffSpec("fixed", MAX_U64, MAX_U64), attempts=1) == [MAX_U64]
        assert delays(BackoffSpec("exponential", MAX_U64, MAX_U64), attempts=2)[1] == MAX_U64

    @pytest.mark.parametrize(
        ("delay_ms", "multiplier"), ((100, math.nan), (0, math.nan), (0, math.inf), (0, -math.inf))
    )
    def test_a_delay_that_is_not_a_number_is_the_bound(self, delay_ms: int, multiplier: float) -> None:
        backoff = BackoffSpec("exponential", delay_ms, 5000, multiplier, 0)
        assert compute_retry_delay_ms(POLICY, backoff, 1, no_jitter) == 5000
        assert (
            compute_retry_delay_ms(POLICY, BackoffSpec("exponential", delay_ms, None, multiplier, 0), 1, no_jitter)
            == 30_000
        )

    @in_one_test("multiplier", (math.nan, math.inf, -math.inf, -2.0, 1e308, 5e-324))
    @in_one_test("delay_ms", (0, 1, 100, MAX_U64))
    @in_one_test("attempt", (0, 1, 2, 3, 1000, MAX_U32))
    def test_the_delay_is_an_int_within_bounds_for_any_multiplier(
        self, multiplier: float, delay_ms: int, attempt: int
    ) -> None:
        delay = compute_retry_delay_ms(
            POLICY, BackoffSpec("exponential", delay_ms, multiplier=multiplier), attempt, no_jitter
        )
        assert type(delay) is int
        assert 0 <= delay <= 30_000

    @given(
        st.sampled_from(["fixed", "exponential"]),
        st.integers(0, 10**6),
        st.integers(0, 10**9) | st.none(),
        st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 8.0]) | st.none(),
        st.integers(0, 20),
    )
    def test_the_delay_follows_the_formula(
        self, kind: str, delay_ms: int, bound: int | None, multiplier: float | None, attempt: int
    ) -> None:
        """Held against exact fractions, with multipliers that a float holds exactly."""
        factor = Fraction(POLICY.multiplier if multiplier is None else multiplier)
        base = Fraction(delay_ms) if kind == "fixed" else delay_ms * Fraction(factor**attempt)
        expected = min(base, Fraction(POLICY.max_ms if bound is None else bound))
        delay = compute_retry_delay_ms(POLICY, BackoffSpec(kind, delay_ms, bound, multiplier), attempt, no_jitter)
        assert delay == pytest.approx(math.floor(expected), rel=1e-12, abs=0)

    @given(st.integers(1, 1000), st.floats(1, 10), st.integers(0, 60))
    def test_the_delay_never_shrinks_from_attempt_to_attempt(
        self, delay_ms: int, multiplier: float, attempt: int
    ) -> None:
        backoff = BackoffSpec("exponential", delay_ms, multiplier=multiplier)
        first, second = (compute_retry_delay_ms(POLICY, backoff, attempt + more, no_jitter) for more in (0, 1))
        assert first <= second <= POLICY.max_ms


class TestJitter:
    def test_the_jitter_comes_on_top_of_the_bound(self) -> None:
        backoff = BackoffSpec("exponential", 100, max_delay_ms=300, jitter_ms=50)
        assert compute_retry_delay_ms(POLICY, backoff, 9, lambda spread: spread - 1) == 349

    def test_the_jitter_is_asked_for_its_spread(self) -> None:
        asked: list[int] = []

        def jitter(spread: int) -> int:
            asked.append(spread)
            return 0

        policy = RetryPolicy(jitter_ms=70)
        compute_retry_delay_ms(policy, None, 0, jitter)
        compute_retry_delay_ms(policy, BackoffSpec("fixed", 1), 0, jitter)
        compute_retry_delay_ms(policy, BackoffSpec("fixed", 1, jitter_ms=9), 0, jitter)
        assert asked == [70, 70, 9]

    def test_a_spread_of_0_is_none_at_all(self) -> None:
        def jitter(spread: int) -> int:
            raise AssertionError("randrange(0) would raise")

        assert compute_retry_delay_ms(POLICY, BackoffSpec("fixed", 7), 0, jitter) == 7
        assert compute_retry_delay_ms(RetryPolicy(), BackoffSpec("fixed", 7, jitter_ms=0), 0, jitter) == 7

    def test_an_int_as_backoff_gives_the_official_range(self) -> None:
        """backoff=50 means 50 to 149 ms, because the jitter is the worker's own."""
        source = random.Random(1)
        seen = {
            compute_retry_delay_ms(RetryPolicy(), BackoffSpec("fixed", 50), 0, source.randrange) for _ in range(5000)
        }
        assert (min(seen), max(seen)) == (50, 149)

    def test_the_same_seed_gives_the_same_delays(self) -> None:
        def run(seed: int) -> list[int]:
            source = random.Random(seed)
            return [compute_retry_delay_ms(RetryPolicy(), None, attempt, source.randrange) for attempt in range(20)]

        assert run(7) == run(7)
        assert run(7) != run(8)

    @given(st.integers(0, MAX_U64), st.integers(0, 2**32))
    def test_any_spread_can_be_drawn_from(self, spread: int, seed: int) -> None:
        backoff = BackoffSpec("fixed", 5, jitter_ms=spread)
        delay = compute_retry_delay_ms(POLICY, backoff, 0, random.Random(seed).randrange)
        assert 5 <= delay < 5 + max(1, spread)
