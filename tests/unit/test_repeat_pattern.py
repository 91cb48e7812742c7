"""When repeatables fire: the dialect and the zones as tables, the windows against independent witnesses."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from pychasqui import InvalidArgument, InvalidType, MissedFiresPolicy, RepeatPattern, next_fire, next_fires
from pychasqui._core.fire_times import LAST_MS
from pychasqui._core.repeat_pattern import (
    check_and_make_missed_fires_policy,
    check_and_make_repeat_pattern,
    make_default_repeatable_key,
)
from tests.support.cases import in_one_test
from tests.support.repeatables import spec, windows

every, cron = RepeatPattern.every, RepeatPattern.cron
skip, fire_once, fire_all = MissedFiresPolicy.skip, MissedFiresPolicy.fire_once, MissedFiresPolicy.fire_all
HOUR, DAY = 3600, 86_400


def ms(text: str, zone: str = "UTC") -> int:
    """An instant; one that the clock shows twice is the first unless the text says +HH:MM."""
    moment = datetime.fromisoformat(text)
    moment = moment.replace(tzinfo=ZoneInfo(zone)) if moment.tzinfo is None else moment
    return int(moment.timestamp() * 1000)


def printable(fires: Sequence[int], zone: str = "UTC") -> list[str]:
    return [datetime.fromtimestamp(fire / 1000, ZoneInfo(zone)).isoformat() for fire in fires]


# Construction


class Beat(enum.IntEnum):
    SECOND = 1000


class Times(enum.StrEnum):
    NOON = "0 12 * * *"


def test_patterns_carry_what_they_were_built_from() -> None:
    assert every(1500) == RepeatPattern("every", interval_ms=1500)
    assert every(timedelta(minutes=1.5)) == every(90_000)
    assert cron("0 9 * * *", tz="Europe/Berlin") == RepeatPattern("cron", "0 9 * * *", "Europe/Berlin")
    assert every(1500).to_dict() == {"kind": "every", "interval_ms": 1500}
    assert cron("@daily").to_dict() == {"kind": "cron", "expression": "@daily"}
    assert cron("@daily", "Z").to_dict() == {"kind": "cron", "expression": "@daily", "tz": "Z"}
    assert fire_all(3).to_dict() == {"kind": "fire-all", "max_catchup": 3}
    assert fire_once().to_dict() == {"kind": "fire-once"}


def test_subclasses_of_int_and_str_become_int_and_str() -> None:
    assert type(every(Beat.SECOND).interval_ms) is int
    pattern = cron(Times.NOON, Times.NOON.replace(Times.NOON, "UTC"))
    assert type(pattern.expression) is str
    assert make_default_repeatable_key("x", pattern) == "x::cron:0 12 * * *:UTC"


@in_one_test(
    ("build", "error", "words"),
    (
        (lambda: every(0), InvalidArgument, "interval_ms is 0, must be from 1"),
        (lambda: every(-5), InvalidArgument, "interval_ms is -5"),
        (lambda: every(2**64), InvalidArgument, "interval_ms is"),
        (lambda: every(True), InvalidType, "interval_ms must be an int"),
        (lambda: every(cast(Any, 1.5)), InvalidType, "interval_ms must be an int"),
        (lambda: every(timedelta(0)), InvalidArgument, "interval_ms is 0"),
        (lambda: every(timedelta(microseconds=1500)), InvalidArgument, "whole milliseconds"),
        (lambda: cron(cast(Any, 5)), InvalidType, "expression must be a str"),
        (lambda: cron("@daily", cast(Any, 5)), InvalidType, "tz must be a str or None"),
        (lambda: RepeatPattern("weekly"), InvalidArgument, "'every' or 'cron', not 'weekly'"),
        (lambda: RepeatPattern("every", "@daily", interval_ms=5), InvalidArgument, "expression is '@daily'"),
        (lambda: RepeatPattern("cron", "@daily", interval_ms=5), InvalidArgument, "interval_ms is 5"),
        (lambda: fire_all(0), InvalidArgument, "max_catchup is 0, must be from 1 to 4294967295"),
        (lambda: fire_all(2**32), InvalidArgument, "max_catchup"),
        (lambda: fire_all(True), InvalidType, "max_catchup must be an int"),
        (lambda: MissedFiresPolicy("skip", 5), InvalidArgument, "max_catchup is 5"),
        (lambda: MissedFiresPolicy("fire_all", 5), InvalidArgument, "'fire_all'"),
        (lambda: spec(limit=0), InvalidArgument, "limit is 0, must be from 1"),
        (lambda: spec(start_after_ms=-1), InvalidArgument, "start_after_ms is -1"),
        (lambda: spec(end_before_ms=1.0), InvalidType, "end_before_ms must be an int"),
        (lambda: spec(key=5), InvalidType, "key must be a str"),
        (lambda: next_fire(every(5), -1), InvalidArgument, "after_ms is -1"),
        (lambda: next_fires(every(5), -1, 0), InvalidArgument, "n is -1"),
        (lambda: check_and_make_repeat_pattern("@daily"), InvalidType, "repeat must be"),
        (lambda: check_and_make_repeat_pattern({"kind": "every", "ms": 5}), InvalidArgument, "repeat has no 'ms'"),
        (lambda: check_and_make_repeat_pattern({"interval_ms": 5}), InvalidArgument, "repeat['kind'] is required"),
        (lambda: check_and_make_missed_fires_policy("skip"), InvalidType, "missed_fires must be"),
    ),
)
def test_a_wrong_argument_is_named_at_once(build: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        build()
    assert words in str(caught.value)


def test_mappings_stand_for_patterns_and_policies() -> None:
    assert check_and_make_repeat_pattern({"kind": "cron", "expression": "@daily", "tz": "Z"}) == cron("@daily", "Z")
    assert check_and_make_repeat_pattern(every(5)) == every(5)
    assert check_and_make_missed_fires_policy(None) == skip()
    assert check_and_make_missed_fires_policy({"kind": "fire-all", "max_catchup": 2}) == fire_all(2)
    assert check_and_make_missed_fires_policy(fire_once()) == fire_once()


def test_keys_name_job_and_pattern() -> None:
    assert spec(every(60_000)).key == "tick::every:60000"
    assert spec(cron("0 9 * * *")).key == "tick::cron:0 9 * * *:UTC"
    assert spec(cron("0 9 * * *", "Z")).key == "tick::cron:0 9 * * *:Z"
    assert spec(cron("0 9 * * *", "")).key == "tick::cron:0 9 * * *:"
    assert spec(key="mine").key == "mine"


# The dialect


@in_one_test(
    ("expression", "fires"),
    (
        ("* * * * *", "01-01T00:01 01-01T00:02 01-01T00:03"),
        ("*/15 * * * *", "01-01T00:15 01-01T00:30 01-01T00:45 01-01T01:00"),
        ("5/25 * * * *", "01-01T00:05 01-01T00:30 01-01T00:55 01-01T01:05"),
        ("1-5/2,50 7 * * *", "01-01T07:01 01-01T07:03 01-01T07:05 01-01T07:50"),
        ("*/61 * * * *", "01-01T01:00 01-01T02:00"),
        ("00 09 * * *", "01-01T09:00 01-02T09:00"),
        (" 0\t9  * * * ", "01-01T09:00 01-02T09:00"),
        ("30 0 12 * * *", "01-01T12:00:30 01-02T12:00:30"),
        ("*/40 */59 * * * *", "01-01T00:00:40 01-01T00:59 01-01T00:59:40 01-01T01:00"),
        ("0 0 0 1 1 * 2029,2031", "2029-01-01T00:00 2031-01-01T00:00"),
        ("0 0 0 1 1 * 2028/2", "2028-01-01T00:00 2030-01-01T00:00"),
        ("59 59 23 31 12 * 2027-2028", "12-31T23:59:59 2028-12-31T23:59:59"),
        ("@hourly", "01-01T01:00 01-01T02:00"),
        ("@DAILY", "01-02T00:00 01-03T00:00"),
        ("@weekly", "01-03T00:00 01-10T00:00"),
        ("@monthly", "02-01T00:00 03-01T00:00"),
        ("@yearly", "2028-01-01T00:00 2029-01-01T00:00"),
        (" @annually ", "2028-01-01T00:00 2029-01-01T00:00"),
        ("0 0 1 JAN-mar/2,Dec *", "03-01T00:00 12-01T00:00 2028-01-01T00:00"),
        ("0 0 * * mon", "01-04T00:00 01-11T00:00"),
        ("0 0 * * 7", "01-03T00:00 01-10T00:00"),
        ("0 0 * * SAT-SUN", "01-02T00:00 01-03T00:00 01-09T00:00"),
        ("0 0 * * SUN-MON", "01-03T00:00 01-04T00:00 01-10T00:00"),
        ("0 0 * * 1/2", "01-03T00:00 01-04T00:00 01-06T00:00 01-08T00:00"),
        ("0 0 1 * MON", "01-04T00:00 01-11T00:00 01-18T00:00 01-25T00:00 02-01T00:00"),
        ("0 0 */20 * MON", "01-04T00:00 01-11T00:00 01-18T00:00 01-21T00:00"),
        ("0 0 1 * +MON", "02-01T00:00 03-01T00:00 11-01T00:00"),
        ("0 0 ? * MON", "01-04T00:00 01-11T00:00"),
        ("0 0 13 * ?", "01-13T00:00 02-13T00:00"),
        ("0 0 L * *", "01-31T00:00 02-28T00:00 03-31T00:00"),
        ("0 0 L 2 *", "02-28T00:00 2028-02-29T00:00"),
        ("0 0 L,15 * *", "01-15T00:00 01-31T00:00"),
        ("0 0 15W * *", "01-15T00:00 02-15T00:00 03-15T00:00 04-15T00:00 05-14T00:00"),
        ("0 0 1w * *", "02-01T00:00 03-01T00:00 04-01T00:00 05-03T00:00"),
        ("0 0 31W * *", "01-29T00:00 03-31T00:00 05-31T00:00 07-30T00:00"),
        ("0 0 LW * *", "01-29T00:00 02-26T00:00 03-31T00:00 04-30T00:00"),
        ("0 0 * * 5L", "01-29T00:00 02-26T00:00"),
        ("0 0 * * FRI#L", "01-29T00:00 02-26T00:00"),
        ("0 0 * * SUNL", "01-31T00:00 02-28T00:00"),
        ("0 0 * * 7L", "01-31T00:00 02-28T00:00"),
        ("0 0 * * 5#2", "01-08T00:00 02-12T00:00"),
        ("0 0 * * 1-3#2", "01-11T00:00 01-12T00:00 01-13T00:00 02-08T00:00"),
        ("0 0 * * MON#1,FRI#L", "01-04T00:00 01-29T00:00 02-01T00:00"),
        ("0 0 * * 5#5", "01-29T00:00 04-30T00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00 2032-02-29T00:00"),
        ("0 0 29 2 +MON", "2044-02-29T00:00 2072-02-29T00:00 2112-02-29T00:00"),
        ("0 0 31 * *", "01-31T00:00 03-31T00:00 05-31T00:00 07-31T00:00 08-31T00:00"),
        ("0 0 1,,2 * *", "01-02T00:00 02-01T00:00"),
    ),
)
def test_an_expression_fires_from_2027_on(expression: str, fires: str) -> None:
    expected = [text if text.startswith("2") else f"2027-{text}" for text in fires.split()]
    assert next_fires(cron(expression), len(expected), ms("2027-01-01T00:00")) == [ms(text) for text in expected]


@in_one_test(
    "expression",
    (
        *("", "* * * *", "* * * * * * * *", "@midnight", "@reboot", "@every 5m", "@", "foo"),
        *("60 * * * *", "* 24 * * *", "0 0 0 * *", "0 0 32 * *", "0 0 * 0 *", "0 0 * 13 *", "0 0 * * 8"),
        *(
            "*/0 * * * *",
            "*/65536 * * * *",
            "1/ * * * *",
            "/2 * * * *",
            "1-2-3 * * * *",
            "1/2/3 * * * *",
            "*-5 * * * *",
        ),
        *("30-10 * * * *", "0 0 * * 5-1", "0 0 * * FRI-MON", "0 0 * NOV-FEB *", "-1 * * * *", "1- * * * *"),
        *("*,5 * * * *", "0 0 , * *", "? * * * *", "0 0 * ? *", "0 L * * *", "0 0 * * L", "0 0 * * *L", "0 0 * * *#2"),
        *("0 0 * * 5#0", "0 0 * * 5#6", "0 0 * * 5#", "0 0 * * #2", "0 0 * * 5#1-2", "0 0 5#1 * *", "0 0 * 2#1 *"),
        *("0 0 W * *", "0 0 0W * *", "0 0 32W * *", "0 0 1-15W * *", "0 0 * * 1W", "0 0 L-2 * *", "0 0 L/2 * *"),
        *(
            "0 0 * January *",
            "0 0 * * Monday",
            "0 0 * MON *",
            "0 0 * * JAN",
            "0 0 * * ++MON",
            "0 0 +1 * *",
            "0 0 * * +",
        ),
        *(
            "0.5 * * * *",
            "\u0663 * * * *",
            "\U0001d7d9 * * * *",
            "0 0 * * \u017fun",
            "H H * * *",
            "0 0 0 1 1 * 0",
            "0 0 0 1 1 * 5001",
        ),
        *("0 0 30 2 *", "0 0 31 4,6 *", "0 0 30W 2 *", "0 0 13 * +MON#1", "0 0 0 29 2 * 2027", "1," * 1000),
    ),
)
def test_an_expression_that_could_never_fire_is_refused(expression: str) -> None:
    with pytest.raises(InvalidArgument, match="cron expression"):
        cron(expression)


def test_a_refusal_names_the_field_and_its_bounds() -> None:
    with pytest.raises(InvalidArgument) as caught:
        cron("0 25 * * *")
    assert str(caught.value) == "cron expression '0 25 * * *': hour '25' must be from 0 to 23"
    with pytest.raises(InvalidArgument) as caught:
        cron("0 0 * * FOO")
    assert str(caught.value).endswith("weekday 'FOO' must be from 0 to 7 or SUN to SAT")


def test_years_come_to_an_end() -> None:
    once = cron("0 0 0 1 1 * 2030")
    assert next_fires(once, 5, ms("2027-01-01T00:00")) == [ms("2030-01-01T00:00")]
    assert next_fire(once, ms("2030-01-01T00:00")) is None
    assert next_fire(cron("* * * * *"), LAST_MS) is None
    assert next_fire(every(5), LAST_MS - 5) == LAST_MS
    assert next_fire(every(5), LAST_MS - 4) is None
    assert next_fire(every(2**64 - 1), 0) is None


# Time zones


@in_one_test(
    ("tz", "utc"),
    (
        *(
            (tz, "12:00")
            for tz in (None, "", "  ", "UTC", "utc", "Z", " Z ", "GMT", "Etc/UTC", "Zulu", "+00:00", "-0000")
        ),
        *(("+02:00", "10:00"), ("+0200", "10:00"), ("+2:00", "10:00"), (" +05:30 ", "06:30"), ("-0530", "17:30")),
        *(("+23:59", "12:01"), ("-23:59", "11:59"), ("Etc/GMT+2", "14:00"), ("US/Eastern", "17:00"), ("EST", "17:00")),
        *((" Europe/Berlin ", "11:00"), ("Asia/Calcutta", "06:30")),
    ),
)
def test_noon_is_the_zones_own(tz: str | None, utc: str) -> None:
    assert next_fire(cron("0 12 * * *", tz), ms("2027-01-01T00:00")) == ms(f"2027-01-01T{utc}")


@in_one_test(
    "tz",
    (
        *("z", "+2", "+02", "02:00", "+24:00", "-9999", "+02:00:00", "UTC+2", "+ 2:00", "\u221202:00", "+0a:00"),
        *(
            "Europe",
            "Mars/Phobos",
            "localtime",
            "posixrules",
            "posix/Europe/Berlin",
            "right/UTC",
            "Factory",
            "zone.tab",
        ),
        *("../UTC", "/etc/passwd", "Europe/Berlin\0", "\ud800", "x" * 5000),
    ),
)
def test_a_zone_that_does_not_exist_is_refused(tz: str) -> None:
    with pytest.raises(InvalidArgument, match="tz '"):
        cron("0 12 * * *", tz)


@in_one_test(
    ("zone", "expression", "after", "fires"),
    (
        # The clock skips 02:00 to 03:00: a single time of day fires as it jumps, and only then.
        ("Europe/Berlin", "30 2 * * *", "2027-03-27T12:00", "28T03:00+02:00 29T02:30+02:00 30T02:30+02:00"),
        ("Europe/Berlin", "59 59 2 * * *", "2027-03-28T01:59:59", "28T03:00+02:00 29T02:59:59+02:00"),
        ("Europe/Berlin", "30 1 * * *", "2027-03-27T12:00", "28T01:30+01:00 29T01:30+02:00"),
        ("Europe/Berlin", "0 3 * * *", "2027-03-27T12:00", "28T03:00+02:00 29T03:00+02:00"),
        ("America/New_York", "30 2 * * *", "2027-03-13T12:00", "14T03:00-04:00 15T02:30-04:00"),
        ("Australia/Lord_Howe", "15 2 * * *", "2027-10-02T12:00", "03T02:30+11:00 04T02:15+11:00"),
        ("America/Havana", "0 0 * * *", "2027-03-13T12:00", "14T01:00-04:00 15T00:00-04:00"),
        ("Antarctica/Troll", "30 1 * * *", "2027-03-27T12:00", "28T03:00+02:00 29T01:30+02:00"),
        # Several times of day: those that exist.
        ("Europe/Berlin", "0,30 2 * * *", "2027-03-27T12:00", "29T02:00+02:00 29T02:30+02:00"),
        ("Europe/Berlin", "15 2,3 * * *", "2027-03-27T12:00", "28T03:15+02:00 29T02:15+02:00"),
        ("Europe/Berlin", "30 * * * *", "2027-03-28T00:45", "28T01:30+01:00 28T03:30+02:00"),
        # The clock shows 02:00 to 03:00 twice: once, the first time, also if asked in between.
        ("Europe/Berlin", "30 2 * * *", "2027-10-30T12:00", "31T02:30+02:00 2027-11-01T02:30+01:00"),
        ("Europe/Berlin", "30 2 * * *", "2027-10-31T02:15+01:00", "2027-11-01T02:30+01:00"),
        ("Europe/Berlin", "*/30 2 * * *", "2027-10-30T12:00", "31T02:00+02:00 31T02:30+02:00 2027-11-01T02:00+01:00"),
        ("Europe/Berlin", "*/30 2 * * *", "2027-10-31T02:00+01:00", "2027-11-01T02:00+01:00"),
        ("Europe/Berlin", "15 2,3 * * *", "2027-10-31T02:10+01:00", "31T03:15+01:00"),
        ("Europe/Berlin", "0 3 * * *", "2027-10-30T12:00", "31T03:00+01:00 2027-11-01T03:00+01:00"),
        ("America/New_York", "30 1 * * *", "2027-11-06T12:00", "07T01:30-04:00 08T01:30-05:00"),
        ("Australia/Lord_Howe", "45 1 * * *", "2027-04-03T12:00", "04T01:45+11:00 05T01:45+10:30"),
        ("America/Havana", "30 0 * * *", "2027-11-06T12:00", "07T00:30-04:00 08T00:30-05:00"),
        # For all hours: both times.
        ("Europe/Berlin", "0 * * * *", "2027-10-31T01:00", "31T02:00+02:00 31T02:00+01:00 31T03:00+01:00"),
        ("Europe/Berlin", "30 */1 * * *", "2027-10-31T02:15+02:00", "31T02:30+02:00 31T02:30+01:00 31T03:30+01:00"),
        ("Australia/Lord_Howe", "45 * * * *", "2027-04-04T00:50", "04T01:45+11:00 04T01:45+10:30 04T02:45+10:30"),
        # Years later, across many changes.
        ("Europe/Berlin", "30 2 28 3 *", "2027-03-28T12:00", "2028-03-28T02:30+02:00 2029-03-28T02:30+02:00"),
        ("Europe/Berlin", "30 2 29 2 *", "2028-03-01T12:00", "2032-02-29T02:30+01:00"),
        ("Europe/Berlin", "59 59 23 31 12 *", "2027-03-28T12:00", "2027-12-31T23:59:59+01:00"),
    ),
)
def test_a_cron_fires_at_the_right_times_when_clocks_change(zone: str, expression: str, after: str, fires: str) -> None:
    expected = [text if text.startswith("20") else after[:8] + text for text in fires.split()]
    found = next_fires(cron(expression, zone), len(expected), ms(after, zone))
    assert printable(found, zone) == printable([ms(text) for text in expected], zone)


@pytest.mark.parametrize(
    ("zone", "short", "long", "missing", "extra"),
    (
        ("Europe/Berlin", "2027-03-28", "2027-10-31", 60, 60),
        ("America/New_York", "2027-03-14", "2027-11-07", 60, 60),
        ("Australia/Lord_Howe", "2027-10-03", "2027-04-04", 30, 30),
        ("UTC", "2027-03-28", "2027-10-31", 0, 0),
    ),
)
def test_days_are_as_long_as_they_are(zone: str, short: str, long: str, missing: int, extra: int) -> None:
    for expression, minutes in (("* * * * *", 1), ("*/15 * * * *", 15)):
        for day, length in ((short, 1440 - missing), (long, 1440 + extra)):
            start, end = ms(day, zone), ms(f"{day[:8]}{int(day[8:]) + 1:02}" if day[8:] != "31" else "2027-11-01", zone)
            assert len(windows(cron(expression, zone), start - 1, end - 1)) == length // minutes
    hourly = next_fires(cron("0 * * * *", "Europe/Berlin"), 25, ms("2027-10-30T23:30", "Europe/Berlin"))
    assert printable(hourly, "Europe/Berlin")[-1] == "2027-10-31T23:00:00+01:00"


# Far away

FAR_ZONES = ("UTC", "+14:00", "-12:00", "Europe/Berlin", "Asia/Tokyo", "Pacific/Kiritimati", "Africa/Casablanca")


@in_one_test("zone", FAR_ZONES)
@in_one_test("after_ms", (ms("9999-01-01"), LAST_MS - 1, LAST_MS, LAST_MS + 1, 2**63, 2**64 - 1))
def test_a_cron_has_no_window_past_the_last_year_of_a_calendar(zone: str, after_ms: int) -> None:
    for expression in ("* * * * * *", "0 0 1 1 *", "0 0 0 1 1 * 5000"):
        assert next_fire(cron(expression, zone), after_ms) is None


@in_one_test("zone", FAR_ZONES)
def test_a_far_window_is_found_at_once_and_on_the_zones_own_clock(zone: str) -> None:
    begun = process_time()
    fire_ms = next_fire(cron("0 30 12 15 7 * 4999", zone), ms("2027-01-01"))
    assert process_time() - begun < 0.05  # it took 0.7 s to walk there
    assert fire_ms is not None
    assert printable([fire_ms], "UTC")[0].startswith("4999-07-1")
    near_ms = next_fire(cron("0 30 12 15 7 * 4999", zone), fire_ms - 40 * DAY * 1000)
    assert fire_ms == near_ms


def test_a_pattern_whose_every_time_is_skipped_by_the_clocks_has_no_window() -> None:
    """In New York the second Sunday of March has no half past two."""
    begun = process_time()
    assert next_fire(cron("30,45 2 * 3 SUN#2", "America/New_York"), ms("2027-01-01")) is None
    assert process_time() - begun < 0.5  # 0.05 where nothing else runs; it took 0.9


@pytest.mark.parametrize("zone", ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe"))
@pytest.mark.parametrize(
    "expression", ("0 * 1 11 *", "15 1 1-7 11 +SUN", "*/30 2 31 10 *", "0 3 29 2 *", "30 2 28 3 *")
)
def test_a_window_is_the_same_from_far_and_from_near(expression: str, zone: str) -> None:
    pattern = cron(expression, zone)
    for year in range(2027, 2060, 4):
        from_far = next_fire(pattern, ms(f"{year}-01-01"))
        assert from_far is not None
        for days in (100, 7, 4, 3, 2, 1):
            near = max(ms(f"{year}-01-01"), from_far - days * DAY * 1000)
            assert next_fire(pattern, near) == from_far or near < ms(f"{year}-01-01") + DAY * 1000


# Properties of windows

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Antarctica/Troll")
instants = st.integers(ms("1971-01-01"), ms("2060-01-01"))


def _part(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    ranges = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    steps = st.integers(1, high).map(lambda step: f"*/{step}")
    lists = st.lists(number, min_size=1, max_size=3).map(lambda numbers: ",".join(map(str, numbers)))
    return st.one_of(st.just("*"), number.map(str), ranges, steps, lists)


days = st.one_of(
    st.tuples(_part(1, 28), _part(1, 12), st.just("*")), st.tuples(st.just("*"), _part(1, 12), _part(0, 6))
)
expressions = st.tuples(_part(0, 59), _part(0, 23), days).map(
    lambda parts: f"{parts[0]} {parts[1]} {' '.join(parts[2])}"
)
patterns = st.one_of(
    st.integers(1, 10**10).map(every),
    st.tuples(expressions, st.sampled_from(ZONES)).map(lambda pair: cron(*pair)),
)


@settings(max_examples=60)
@given(patterns, instants)
def test_a_window_is_strictly_after_and_the_next_are_in_order(pattern: RepeatPattern, after_ms: int) -> None:
    fires = next_fires(pattern, 5, after_ms)
    assert len(fires) == 5
    assert all(earlier < later for earlier, later in zip([after_ms, *fires], fires, strict=False))


@settings(max_examples=60)
@given(expressions, st.sampled_from(ZONES), instants, st.integers(0, 10 * DAY * 1000))
def test_asking_later_never_finds_an_earlier_window(expression: str, zone: str, after_ms: int, later_ms: int) -> None:
    pattern = cron(expression, zone)
    fire_ms, later_fire_ms = next_fire(pattern, after_ms), next_fire(pattern, after_ms + later_ms)
    assert fire_ms is not None
    assert later_fire_ms is not None
    assert fire_ms % 1000 == 0
    assert fire_ms <= later_fire_ms
    if after_ms + later_ms < fire_ms:
        assert fire_ms == later_fire_ms
    assert next_fire(pattern, fire_ms - 1) == fire_ms


@settings(max_examples=60)
@given(expressions, instants)
def test_windows_in_utc_are_those_of_cronsim(expression: str, after_ms: int) -> None:
    witness = CronSim(expression, datetime.fromtimestamp(after_ms // 1000, UTC))
    expected = [int(next(witness).timestamp()) * 1000 for _ in range(3)]
    assert next_fires(cron(expression), 3, after_ms) == expected


CHANGES = (
    ("Europe/Berlin", ms("2027-03-28T01:00")),
    ("Europe/Berlin", ms("2027-10-31T01:00")),
    ("America/New_York", ms("2028-03-12T07:00")),
    ("America/New_York", ms("2028-11-05T06:00")),
    ("Australia/Lord_Howe", ms("2027-10-02T15:30")),
    ("Australia/Lord_Howe", ms("2028-04-01T15:00")),
    ("America/Havana", ms("2029-03-11T05:00")),
    ("America/Havana", ms("2029-11-04T05:00")),
    ("Antarctica/Troll", ms("2027-03-28T01:00")),
    ("Antarctica/Troll", ms("2027-10-31T01:00")),
)


@settings(max_examples=80)
@given(_part(0, 59), _part(0, 4), st.sampled_from(CHANGES), st.integers(-200, 200))
def test_windows_around_a_clock_change_follow_the_wall_clock(
    minute: str, hour: str, change: tuple[str, int], offset_minutes: int
) -> None:
    """Minute by minute: a time of day counts when the clock shows it, again only for all hours, or as it jumps."""
    zone, change_ms = change
    after_ms = change_ms + offset_minutes * 60_000
    until_ms = change_ms + 6 * HOUR * 1000
    minutes, hours = _numbers(minute, 60), _numbers(hour, 24)
    expected = set()
    for instant in range(after_ms + 60_000, until_ms, 60_000):
        wall = datetime.fromtimestamp(instant / 1000, ZoneInfo(zone))
        if wall.minute in minutes and wall.hour in hours and (not wall.fold or len(hours) == 24):
            expected.add(instant)
    old = (datetime.fromtimestamp(change_ms / 1000 - 1, ZoneInfo(zone)) + timedelta(seconds=1)).replace(tzinfo=None)
    new = datetime.fromtimestamp(change_ms / 1000, ZoneInfo(zone)).replace(tzinfo=None)
    skipped = old.replace(hour=min(hours), minute=min(minutes))
    if len(minutes) == len(hours) == 1 and after_ms < change_ms and old <= skipped < new:
        expected.add(change_ms)
    assert windows(cron(f"{minute} {hour} * * *", zone), after_ms, until_ms - 1) == sorted(expected)


def _numbers(part: str, count: int) -> set[int]:
    found: set[int] = set()
    for item in part.split(","):
        span, _, step = item.partition("/")
        low, _, high = span.partition("-")
        found.update(range(count)[:: int(step or 1)] if span == "*" else range(int(low), int(high or low) + 1))
    return found
