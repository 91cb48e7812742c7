"""Delays, windows and if_exists become arguments of the script, or an error with the reason."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pychasqui._core.options import (
    LONGEST_MS,
    PLAIN,
    AddOptions,
    JobOptions,
    check_and_make_add_options,
    check_delay_ms,
    check_span_ms,
)
from pychasqui.errors import InvalidArgument, InvalidType

CAP_MS = 30 * 24 * 3600 * 1000
naive = datetime.fromisoformat


def options(
    job_id: str | None = None,
    *,
    delay_ms: Any = None,
    delay: Any = None,
    unique_for: Any = None,
    if_exists: Any = None,
    cap_ms: int = CAP_MS,
) -> AddOptions:
    given: JobOptions = {"delay_ms": delay_ms, "delay": delay, "unique_for": unique_for, "if_exists": if_exists}
    return check_and_make_add_options(job_id, given, cap_ms)


class TestDue:
    def test_no_options_are_plain(self) -> None:
        assert options() is PLAIN

    @pytest.mark.parametrize("none", ({"delay_ms": 0}, {"delay_ms": 0.5}, {"delay": timedelta(0)}))
    def test_no_delay_is_plain(self, none: dict[str, Any]) -> None:
        assert options(**none) is PLAIN

    @pytest.mark.parametrize(
        "asked", ({"delay_ms": 5000}, {"delay_ms": 5000.0}, {"delay_ms": 5000.9}, {"delay": timedelta(seconds=5)})
    )
    def test_a_span_is_from_now_by_the_servers_clock(self, asked: dict[str, Any]) -> None:
        assert options(**asked) == AddOptions("+5000")

    def test_a_datetime_is_a_time(self) -> None:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        assert options(delay_ms=at, cap_ms=0).due == str(int(at.timestamp()) * 1000)

    def test_a_naive_one_is_in_utc(self) -> None:
        at = naive("2026-01-01T12:00")
        assert options(delay_ms=at, cap_ms=0) == options(delay_ms=at.replace(tzinfo=UTC), cap_ms=0)

    def test_a_zone_is_heeded(self) -> None:
        utc, east = datetime(2026, 1, 1, 12, tzinfo=UTC), timezone(timedelta(hours=9))
        assert options(delay_ms=utc.astimezone(east), cap_ms=0) == options(delay_ms=utc, cap_ms=0)

    @given(st.datetimes(timezones=st.just(UTC)))
    def test_a_datetime_is_never_early_and_late_by_less_than_a_millisecond(self, at: datetime) -> None:
        due = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(options(delay_ms=at, cap_ms=0).due))
        assert at <= due or due.year > 9999
        assert due - at < timedelta(milliseconds=1) or at.year < 1970

    @pytest.mark.parametrize("offset", (-12, 0, 14))
    @pytest.mark.parametrize("at", (naive("0001-01-01"), naive("1969-12-31"), naive("9999-12-31T23:59:59.999999")))
    def test_any_datetime_is_a_time(self, at: datetime, offset: int) -> None:
        zone = timezone(timedelta(hours=offset))
        assert int(options(delay_ms=at.replace(tzinfo=zone), cap_ms=0).due) >= 0

    def test_both_ways_to_give_a_delay_contradict_each_other(self) -> None:
        with pytest.raises(InvalidArgument, match="contradict"):
            options(delay_ms=5, delay=timedelta(5))

    @pytest.mark.parametrize("wrong", (-1, -0.5, float("nan"), float("inf"), -float("inf")))
    def test_a_value_that_is_no_delay_is_refused(self, wrong: float) -> None:
        with pytest.raises(InvalidArgument, match="delay_ms is"):
            options(delay_ms=wrong, cap_ms=0)

    def test_ints_that_neither_float_nor_str_takes_are_refused_as_well(self) -> None:
        for wrong in (-(10**400), 10**400, 10**9999):
            with pytest.raises(InvalidArgument, match="delay_ms is far too many ms"):
                options(delay_ms=wrong, cap_ms=0)

    def test_a_negative_timedelta_is_refused_by_its_name(self) -> None:
        with pytest.raises(InvalidArgument, match="delay is -1000 ms"):
            options(delay=timedelta(seconds=-1))

    @pytest.mark.parametrize("wrong", ("5", True, b"5", [], 5j, timedelta(5)))
    def test_a_value_that_is_no_number_is_refused(self, wrong: Any) -> None:
        with pytest.raises(InvalidType, match="delay_ms must be"):
            options(delay_ms=wrong)

    @pytest.mark.parametrize("wrong", (5, 5.0, "5", naive("2026-01-01")))
    def test_a_delay_is_a_timedelta(self, wrong: Any) -> None:
        with pytest.raises(InvalidType, match="delay must be a timedelta"):
            options(delay=wrong)


class TestCap:
    @pytest.mark.parametrize("asked", ({"delay_ms": CAP_MS}, {"delay": timedelta(milliseconds=CAP_MS)}))
    def test_a_delay_up_to_the_cap_is_allowed(self, asked: dict[str, Any]) -> None:
        assert options(**asked).due == f"+{CAP_MS}"

    @pytest.mark.parametrize(
        "asked",
        (
            {"delay_ms": CAP_MS + 1},
            {"delay": timedelta(milliseconds=CAP_MS + 1)},
            {"delay_ms": datetime.fromtimestamp(time.time() + CAP_MS / 1000 + 24 * 3600, UTC)},
            {"delay_ms": naive("9999-12-31")},
        ),
    )
    def test_a_longer_delay_is_refused(self, asked: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgument, match="max_delay_secs=2592000"):
            options(**asked)

    def test_a_cap_of_zero_allows_any_delay(self) -> None:
        assert options(delay_ms=CAP_MS + 1, cap_ms=0).due == f"+{CAP_MS + 1}"

    def test_a_delay_past_100_years_is_refused_without_a_cap(self) -> None:
        assert options(delay_ms=LONGEST_MS, cap_ms=0).due == f"+{LONGEST_MS}"
        with pytest.raises(InvalidArgument, match="100 years"):
            options(delay_ms=LONGEST_MS + 1, cap_ms=0)

    def test_a_time_that_has_passed_is_within_it(self) -> None:
        assert options(delay_ms=naive("1990-01-01")).due == "631152000000"

    def test_the_cap_holds_for_postponing_too(self) -> None:
        assert check_delay_ms("delay", timedelta(seconds=5), 5000) == 5000
        with pytest.raises(InvalidArgument, match="max_delay_secs=5"):
            check_delay_ms("delay", 5001, 5000)


class TestOnly:
    def test_a_job_with_an_id_is_unique_and_keeps_the_first(self) -> None:
        assert options("job") == AddOptions("", "keep", 0)

    def test_a_unique_job_may_have_a_delay(self) -> None:
        assert options("job", delay_ms=5) == AddOptions("+5", "keep", 0)

    @pytest.mark.parametrize("if_exists", ("keep", "replace", "postpone"))
    def test_if_exists_is_passed_on(self, if_exists: str) -> None:
        assert options("job", if_exists=if_exists).only == if_exists

    @pytest.mark.parametrize("window", (5000, 5000.5, timedelta(seconds=5)))
    def test_a_unique_job_may_have_a_window(self, window: Any) -> None:
        assert options("job", unique_for=window) == AddOptions("", "keep", 5000)

    @pytest.mark.parametrize("wrong", ("", "KEEP", "update", 1, ["keep"], b"keep"))
    def test_other_choices_are_refused(self, wrong: Any) -> None:
        with pytest.raises(InvalidArgument, match="keep, replace, postpone"):
            options("job", if_exists=wrong)

    @pytest.mark.parametrize("wrong", (0, -1, 0.5, timedelta(0), float("nan"), 10**13))
    def test_a_window_lasts_a_millisecond_at_least_and_ends(self, wrong: Any) -> None:
        with pytest.raises(InvalidArgument, match="unique_for is"):
            options("job", unique_for=wrong)

    @pytest.mark.parametrize("wrong", ("5", True, naive("2026-01-01")))
    def test_a_window_is_a_span(self, wrong: Any) -> None:
        with pytest.raises(InvalidType, match="unique_for must be"):
            options("job", unique_for=wrong)

    @pytest.mark.parametrize("asked", ({"unique_for": 5000}, {"if_exists": "keep"}, {"unique_for": 0}))
    def test_both_options_need_an_id(self, asked: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgument, match="give a job_id"):
            options(**asked)


def test_errors_are_short_for_any_value() -> None:
    for wrong in ("x" * 10_000, [0] * 10_000):
        with pytest.raises(InvalidType) as refused:
            check_span_ms("delay", wrong)
        assert len(str(refused.value)) <= 300
