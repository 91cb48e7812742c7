"""The retry options of a job, and the errors for bad ones."""

from __future__ import annotations

import enum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pychasqui._core.limits import MAX_U32, MAX_U64
from pychasqui._core.retry_options import BackoffSpec, RetryOverride, check_and_make_retry_override
from pychasqui.errors import InvalidArgument, InvalidType
from tests.support.cases import in_one_test


class Patience(enum.IntEnum):
    SHORT = 5


class Kind(enum.StrEnum):
    FIXED = "fixed"


def test_a_job_that_sets_nothing_overrides_nothing() -> None:
    assert check_and_make_retry_override(None, None) is None


def test_no_attempt_at_all_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="attempts is 0, must be at least 1: it counts every run"):
        check_and_make_retry_override(0, None)


@pytest.mark.parametrize("attempts", (1, 2, MAX_U32))
def test_attempts_alone_leave_the_backoff_to_the_worker(attempts: int) -> None:
    assert check_and_make_retry_override(attempts, None) == RetryOverride(max_attempts=attempts, backoff=None)


@pytest.mark.parametrize("delay_ms", (0, 500, MAX_U64))
def test_an_int_as_backoff_is_a_fixed_delay(delay_ms: int) -> None:
    assert check_and_make_retry_override(None, delay_ms) == RetryOverride(backoff=BackoffSpec("fixed", delay_ms))


def test_fixed_and_exponential_fill_only_what_they_were_given() -> None:
    assert BackoffSpec.fixed(50) == BackoffSpec("fixed", 50, None, None, None)
    assert BackoffSpec.fixed(50, 7) == BackoffSpec("fixed", 50, None, None, 7)
    assert BackoffSpec.exponential(50) == BackoffSpec("exponential", 50, None, 2.0, None)
    everything = BackoffSpec.exponential(50, multiplier=3, max_ms=900, jitter_ms=0)
    assert everything == BackoffSpec("exponential", 50, 900, 3.0, 0)


def test_a_spec_is_a_map_to_msgspec_as_its_users_may_store_it_in_data() -> None:
    spec = BackoffSpec.fixed(50, 7)
    assert msgspec.to_builtins(spec)["jitter_ms"] == 7
    assert msgspec.convert({"kind": "fixed", "delay_ms": 50, "jitter_ms": 7, "since": 1}, BackoffSpec) == spec


def test_a_multiplier_is_a_float_even_if_an_int_was_given() -> None:
    assert type(BackoffSpec.exponential(50, multiplier=3).multiplier) is float
    override = check_and_make_retry_override(None, {"kind": "exponential", "delay_ms": 1, "multiplier": 3})
    assert override is not None
    assert override.backoff is not None
    assert type(override.backoff.multiplier) is float


def test_the_dict_of_the_official_package_is_understood() -> None:
    spec = {"kind": "exponential", "delay_ms": 5, "max_delay_ms": 9, "multiplier": 1.5, "jitter_ms": 3}
    assert check_and_make_retry_override(2, spec) == RetryOverride(2, BackoffSpec("exponential", 5, 9, 1.5, 3))
    assert check_and_make_retry_override(
        None, {"kind": "fixed", "delay_ms": 5, "jitter_ms": None}
    ) == check_and_make_retry_override(None, 5)


def test_subclasses_of_int_and_str_become_int_and_str() -> None:
    override = check_and_make_retry_override(Patience.SHORT, {"kind": Kind.FIXED, "delay_ms": Patience.SHORT})
    assert override == RetryOverride(5, BackoffSpec("fixed", 5))
    assert type(override.max_attempts) is int
    assert override.backoff is not None
    assert type(override.backoff.kind) is str
    assert type(override.backoff.delay_ms) is int


@pytest.mark.parametrize(
    ("attempts", "error", "text"),
    (
        (True, InvalidType, "attempts must be an int, not True"),
        (3.0, InvalidType, "attempts must be an int, not 3.0"),
        ("3", InvalidType, "attempts must be an int, not '3'"),
        (-1, InvalidArgument, "attempts must be between 0 and 4294967295, not -1"),
        (2**32, InvalidArgument, "attempts must be between 0 and 4294967295, not 4294967296"),
    ),
)
def test_wrong_attempts_are_refused_with_value_and_bound(attempts: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as refusal:
        check_and_make_retry_override(attempts, None)
    assert str(refusal.value) == text


FIXED = {"kind": "fixed", "delay_ms": 5}


@in_one_test(
    ("backoff", "error", "text"),
    (
        (True, InvalidType, "a BackoffSpec or a dict, not True"),
        (5.5, InvalidType, "not 5.5"),
        ("5", InvalidType, "not '5'"),
        ([5], InvalidType, r"not \[5\]"),
        (-5, InvalidArgument, "backoff must be between 0 and 18446744073709551615, not -5"),
        (2**64, InvalidArgument, "not 18446744073709551616"),
        ({}, InvalidArgument, r"backoff\['kind'\] is required"),
        ({"kind": "fixed"}, InvalidArgument, r"backoff\['delay_ms'\] is required"),
        ({"kind": None, "delay_ms": 5}, InvalidArgument, r"backoff\['kind'\] is required"),
        ({"kind": "weird", "delay_ms": 5}, InvalidArgument, "'fixed' or 'exponential', not 'weird'"),
        ({"kind": "Fixed", "delay_ms": 5}, InvalidArgument, "not 'Fixed'"),
        ({"kind": 1, "delay_ms": 5}, InvalidType, "backoff.kind must be a str, not 1"),
        (FIXED | {"delay_ms": True}, InvalidType, "backoff.delay_ms must be an int, not True"),
        (FIXED | {"delay_ms": 5.0}, InvalidType, "backoff.delay_ms must be an int, not 5.0"),
        (FIXED | {"jitter_ms": -3}, InvalidArgument, "backoff.jitter_ms must be between 0 and"),
        (FIXED | {"max_delay_ms": 2**64}, InvalidArgument, "backoff.max_delay_ms must be between 0 and"),
        (FIXED | {"multiplier": "2"}, InvalidType, "backoff.multiplier must be a number, not '2'"),
        (FIXED | {"multiplier": True}, InvalidType, "backoff.multiplier must be a number, not True"),
        (FIXED | {"multiplier": float("nan")}, InvalidArgument, "finite number, 0 or more, not nan"),
        (FIXED | {"multiplier": float("inf")}, InvalidArgument, "not inf"),
        (FIXED | {"multiplier": 10**400}, InvalidArgument, "backoff.multiplier must be a finite number"),
        (FIXED | {"multiplier": -0.5}, InvalidArgument, "not -0.5"),
        (FIXED | {"max_ms": 9}, InvalidArgument, "backoff has no 'max_ms'; its keys are kind, delay_ms, max_delay_ms"),
        (BackoffSpec("weird", 5), InvalidArgument, "not 'weird'"),
        (BackoffSpec("fixed", -5), InvalidArgument, "backoff.delay_ms must be between 0 and"),
    ),
)
def test_a_wrong_backoff_is_refused_by_field_value_and_bound(backoff: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        check_and_make_retry_override(None, backoff)


@in_one_test(
    ("build", "error"),
    (
        (lambda: BackoffSpec.fixed(-1), InvalidArgument),
        (lambda: BackoffSpec.fixed(True), InvalidType),
        (lambda: BackoffSpec.fixed(1.5), InvalidType),  # type: ignore[arg-type]
        (lambda: BackoffSpec.fixed(1, -1), InvalidArgument),
        (lambda: BackoffSpec.exponential(2**64), InvalidArgument),
        (lambda: BackoffSpec.exponential(1, multiplier=float("nan")), InvalidArgument),
        (lambda: BackoffSpec.exponential(1, max_ms=False), InvalidType),
    ),
)
def test_fixed_and_exponential_check_their_arguments_at_once(build: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        build()


def test_refusals_are_the_errors_that_code_for_the_official_package_expects() -> None:
    with pytest.raises(ValueError, match="attempts"):
        check_and_make_retry_override(-1, None)
    with pytest.raises(TypeError, match="backoff"):
        check_and_make_retry_override(None, True)


def test_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        BackoffSpec.fixed(1).delay_ms = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        RetryOverride().max_attempts = 2  # type: ignore[misc]


@given(st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.dictionaries(st.text(), st.integers())))
def test_any_value_either_holds_or_is_refused(anything: Any) -> None:
    for arguments in ((anything, None), (None, anything)):
        try:
            override = check_and_make_retry_override(*arguments)
        except (InvalidArgument, InvalidType):
            continue
        assert override is None or isinstance(override, RetryOverride)
