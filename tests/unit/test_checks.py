"""Every check names the field, the value and the bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pychasqui._core import checks
from pychasqui.errors import ChasquiError, InvalidArgument, InvalidType
from tests.support.cases import in_one_test


@in_one_test(
    "name",
    ("a", "emails", "A-Z_0.9:x", "emails/eu", "a b", " a", "ä", "日本語", "🦙", "a*", "{", "{a", "x" * 512, "ü" * 256),
)
def test_a_good_queue_name_is_taken_as_it_is(name: str) -> None:
    assert checks.check_queue_name(name) == name


@in_one_test(
    ("name", "reason"),
    (
        ("", "blank"),
        (" ", "blank"),
        ("{a}", "must not hold a }, which ends"),
        ("a}", "must not hold a }, which ends"),
        ("a\n", "cannot be printed"),
        ("\na", "cannot be printed"),
        ("a\0b", "cannot be printed"),
        ("a\u202eb", "cannot be printed"),
        ("\ud800", "cannot be printed"),
        ("x" * 513, "longer than 512 bytes"),
        ("ü" * 257, "longer than 512 bytes"),
    ),
)
def test_a_queue_name_that_could_reach_other_keys_or_lines_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=f"queue name .*{reason}") as refused:
        checks.check_queue_name(name)
    assert len(str(refused.value)) < 500
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", (None, 5, b"emails", ["emails"], True))
def test_a_queue_name_that_is_no_str_is_refused(name: Any) -> None:
    with pytest.raises(InvalidType, match=r"queue name must be a str"):
        checks.check_queue_name(name)


@pytest.mark.parametrize("name", ("", "send", "ünï", "x" * 256, "ü" * 128, "\U0001f600" * 64))
def test_a_job_name_of_up_to_256_bytes_is_taken(name: str) -> None:
    assert checks.check_and_encode_job_name(name) == name.encode()


@pytest.mark.parametrize("name", ("x" * 257, "ü" * 129, "\U0001f600" * 65, "x" * 1_000_000))
def test_a_longer_job_name_is_refused_with_its_length_and_the_bound(name: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"name '.*{len(name.encode())} bytes.*256") as refused:
        checks.check_and_encode_job_name(name)
    assert len(str(refused.value)) < 500


def test_a_job_name_with_half_a_character_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"name .*surrogate"):
        checks.check_and_encode_job_name("\ud800")


@pytest.mark.parametrize("name", (None, 5, b"send", ["send"], True))
def test_a_job_name_that_is_no_str_is_refused(name: Any) -> None:
    with pytest.raises(InvalidType, match="name must be a str"):
        checks.check_and_encode_job_name(name)


@pytest.mark.parametrize("job_id", ("1", "order-17", "ü", "x" * 4096, " a ", "}{:"))
def test_a_good_job_id_is_taken_as_it_is(job_id: str) -> None:
    assert checks.check_new_job_id(job_id) == checks.check_job_id_of_lookup(job_id) == job_id


@pytest.mark.parametrize("job_id", ("", " ", "\t\n", "x" * 5000, "a\nb", "a\0b"))
def test_a_job_that_others_have_added_may_have_any_id(job_id: str) -> None:
    assert checks.check_job_id_of_lookup(job_id) == job_id


@pytest.mark.parametrize("job_id", (None, 5, b"id", True, ["id"], "\ud800"))
def test_an_id_that_no_job_can_have_is_refused(job_id: Any) -> None:
    with pytest.raises(InvalidArgument, match="job_id"):
        checks.check_job_id_of_lookup(job_id)


@in_one_test(
    "job_id",
    ("", " ", "\t\n", "\u3000", None, 5, 5.0, b"id", True, ["id"], "x" * 4097, "ü" * 2049, "a\nb", "a\0b", "\ud800"),
)
def test_a_job_id_that_is_blank_or_long_or_no_str_is_refused(job_id: Any) -> None:
    with pytest.raises(InvalidArgument, match="job_id") as refused:
        checks.check_new_job_id(job_id)
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)


def test_an_int_within_its_bounds_is_taken() -> None:
    assert [checks.check_int("n", value, 1, 3) for value in (1, 2, 3)] == [1, 2, 3]
    assert checks.check_int("n", 10**12, 1) == 10**12


@pytest.mark.parametrize(("value", "bound"), ((0, "from 1 to 3"), (-1, "from 1 to 3"), (4, "from 1 to 3")))
def test_an_int_out_of_its_bounds_is_refused_with_both(value: int, bound: str) -> None:
    with pytest.raises(InvalidArgument, match=f"count is {value}, must be {bound}"):
        checks.check_int("count", value, 1, 3)


def test_an_int_of_many_digits_is_refused_without_them() -> None:
    """Beyond 4,300 of them Python refuses to write them, and the packer of commands ends the process."""
    for bounds in ((0,), (0, 5)):
        with pytest.raises(InvalidArgument, match="field is a number of more than 40 digits, must be"):
            checks.check_int("field", 10**5000, *bounds)
    assert checks.check_int("field", 2**64 - 1, 0) == 2**64 - 1


def test_a_job_id_of_a_subclass_of_str_becomes_a_plain_one() -> None:
    class Text(str):
        pass

    assert type(checks.check_new_job_id(Text("order-17"))) is str


def test_an_int_below_its_only_bound_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="count is 0, must be at least 1"):
        checks.check_int("count", 0, 1)


@in_one_test("value", (True, False, 1.0, "1", None, b"1", math.nan, [1]))
def test_a_value_that_is_no_int_is_refused_with_its_type(value: Any) -> None:
    with pytest.raises(InvalidType, match=rf"count must be an int, not {type(value).__name__}"):
        checks.check_int("count", value, 1)


@pytest.mark.parametrize("value", (1, 0.001, 3600.5))
def test_a_number_of_seconds_is_taken_as_a_float(value: float) -> None:
    checked = checks.check_seconds("timeout_s", value)
    assert checked == value
    assert type(checked) is float


@pytest.mark.parametrize("value", (0, -1, -0.001, math.nan, math.inf, -math.inf))
def test_seconds_that_never_or_always_end_are_refused(value: float) -> None:
    with pytest.raises(InvalidArgument, match=f"timeout_s is {value}, must be .*above 0"):
        checks.check_seconds("timeout_s", value)


def test_seconds_too_large_for_a_float_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="timeout_s"):
        checks.check_seconds("timeout_s", 10**400)


@pytest.mark.parametrize("value", (True, "1", None, b"1", [1]))
def test_a_value_that_is_no_number_of_seconds_is_refused_with_its_type(value: Any) -> None:
    with pytest.raises(InvalidType, match=rf"timeout_s must be a number of seconds, not {type(value).__name__}"):
        checks.check_seconds("timeout_s", value)


ANYTHING = st.one_of(
    st.text(), st.integers(-(2**64), 2**64), st.floats(), st.booleans(), st.none(), st.binary(), st.lists(st.integers())
)


@given(ANYTHING)
def test_checks_raise_only_our_own_errors_for_any_value(value: Any) -> None:
    all_checks: list[Callable[[], object]] = [
        lambda: checks.check_queue_name(value),
        lambda: checks.check_and_encode_job_name(value),
        lambda: checks.check_job_id_of_lookup(value),
        lambda: checks.check_new_job_id(value),
        lambda: checks.check_consumer_id(value),
        lambda: checks.check_int("count", value, 1),
        lambda: checks.check_seconds("timeout_s", value),
    ]
    for check in all_checks:
        with suppress(ChasquiError):
            check()
