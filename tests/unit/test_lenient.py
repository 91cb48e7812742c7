"""Numbers, texts and fields of others: read, or given a value that says that they cannot be."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pychasqui._core.printable import printable
from pychasqui._wire.lenient import (
    LATEST_MS,
    MAX_PAIRS,
    read_cut_text,
    read_entry_id,
    read_first_pairs,
    read_int,
    read_time_ms_or_zero,
)
from tests.support.cases import in_one_test

ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.binary() | st.integers())
)


@given(ANYTHING)
def test_readers_raise_for_no_value(raw: Any) -> None:
    assert read_int(raw) is None or 0 <= read_int(raw) < 2**63  # type: ignore[operator]
    assert 0 <= read_time_ms_or_zero(raw) <= LATEST_MS
    assert read_cut_text(raw) is None or isinstance(read_cut_text(raw), str)
    assert isinstance(read_first_pairs(raw), dict)
    assert len(read_entry_id(raw)) == 2


@in_one_test(
    ("raw", "number"),
    (
        (b"0", 0),
        (b"42", 42),
        ("42", 42),
        (42, 42),
        (b"007", 7),
        (b"-1", None),
        (b"", None),
        (b"-", None),
        (b"1.5", None),
        (b"1_0", None),
        (b" 1", None),
        ("\u00b2", None),
        ("\u0661", None),
        (b"9" * 5000, None),
        (2**63, None),
        (True, None),
        (1.0, None),
    ),
)
def test_a_number_is_read_only_from_a_few_plain_digits(raw: Any, number: int | None) -> None:
    assert read_int(raw) == number


def test_a_number_below_zero_is_read_if_it_may_be() -> None:
    assert read_int(b"-7", -10) == -7
    assert read_int(b"-11", -10) is None


def test_a_million_digits_cost_no_time() -> None:
    raw = b"9" * 50_000_000
    began = time.thread_time()
    assert read_int(raw) is None
    assert time.thread_time() - began < 0.05


@pytest.mark.parametrize("raw", ("inf", "1e308", 1e308, b"253402300800000"))
def test_a_time_beyond_the_last_year_is_its_end(raw: Any) -> None:
    assert read_time_ms_or_zero(raw) == LATEST_MS


@pytest.mark.parametrize("raw", ("-inf", "-1", "nan", float("nan"), b"x", None))
def test_a_time_that_is_none_is_the_beginning(raw: Any) -> None:
    assert read_time_ms_or_zero(raw) == 0


def test_fields_beyond_a_bound_and_without_a_partner_are_left_out() -> None:
    assert read_first_pairs([b"a", b"1", b"a", b"2", b"b"]) == {b"a": b"2"}
    assert len(read_first_pairs([word for number in range(1000) for word in (b"%d" % number, b"")])) == MAX_PAIRS
    assert len(read_first_pairs({b"%d" % number: b"" for number in range(1000)})) == MAX_PAIRS
    assert read_first_pairs([b"a", 1, 2, b"b", b"c", None]) == {}


@given(st.text(st.characters(), max_size=500))
def test_printable_text_is_one_line_of_a_bounded_length(text: str) -> None:
    line = printable(text, 50)
    assert line.isprintable()
    assert len(line) <= 50 * len(ascii("\U0010ffff"))


def test_a_short_printable_text_is_shown_as_it_is() -> None:
    assert printable("a plain naïve line") == "a plain naïve line"
    assert printable("two\nlines\x1b[2J\u202e") == "two\\nlines\\x1b[2J\\u202e"
    assert printable("two\nlines", keep="\n") == "two\nlines"
    assert printable("x" * 300, 10) == "x" * 9 + "…"
