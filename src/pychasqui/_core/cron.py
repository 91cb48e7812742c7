"""Cron expressions: parses them and finds the next matching wall-clock time. No time zones, no clock, no I/O.

    second  minute  hour  day of month      month            weekday              year
    0-59    0-59    0-23  1-31 L LW nW      1-12 JAN-DEC     0-7 SUN-SAT nL n#k   1-5000

Five fields leave out seconds and years, six leave out years. Any field takes `*`, lists `a,b`, ranges `a-b` and steps
`*/n`, `a/n`, `a-b/n`; the two day fields take `?` for `*`. If both day fields are restricted, a day needs to match only
one of them, unless the weekday starts with `+`. The dialect is that of the official engine, with `LW` and `7L` added.
An official scheduler on the same queue drops a repeatable that uses these two.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

from ..errors import InvalidArgument

MAX_CHARS = 1000
LAST_YEAR = 5000
DAY_S = 86_400
NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_EPOCH = date(1970, 1, 1).toordinal()
_LAST = 32  # stands for the last day of any month
_EVERY_WEEK, _LAST_WEEK = 0, -1
# The calendar repeats itself after 400 years: an expression that has not matched by then never does.
_CYCLE = 401
# The end of the last year on any wall clock.
LAST_WALL = (date(LAST_YEAR + 1, 1, 1).toordinal() - _EPOCH) * DAY_S
_MAX_STEP = 65_535


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression. Times are seconds since 1970-01-01T00:00:00 on the wall clock."""

    seconds: Sequence[int]
    minutes: Sequence[int]
    hours: Sequence[int]
    days: frozenset[int]
    nearest: frozenset[int]  # days that stand for the weekday nearest to them
    months: Sequence[int]
    weekdays: frozenset[tuple[int, int]]  # (day, week): 0 is Sunday; the week of the month, _EVERY_WEEK or _LAST_WEEK
    needs_both: bool  # a day must match day of month and weekday, not only one of them
    years: Sequence[int]
    # The matching days of a month by its first weekday and its length: there are 28 kinds of months.
    _days_by_kind: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_one_time_of_day(self) -> bool:
        return len(self.hours) == len(self.minutes) == len(self.seconds) == 1

    @property
    def has_all_hours(self) -> bool:
        return len(self.hours) == 24

    def find_next_after(self, wall_s: int) -> int | None:
        """Returns the first matching time after `wall`; None if there is none up to LAST_YEAR."""
        if wall_s >= LAST_WALL:
            return None
        day, second = divmod(wall_s, DAY_S)
        start = date.fromordinal(day + _EPOCH)
        found = self.find_first_matching_date(start)
        if found == start:
            time = self._find_next_time_of_day(second)
            if time is not None:
                return day * DAY_S + time
            found = self.find_first_matching_date(date.fromordinal(day + _EPOCH + 1))
        if found is None:
            return None
        return (found.toordinal() - _EPOCH) * DAY_S + _to_second_of_day(self.hours[0], self.minutes[0], self.seconds[0])

    def _find_next_time_of_day(self, after_second_of_day: int) -> int | None:
        minute, after_second_of_day = divmod(after_second_of_day, 60)
        hour, minute = divmod(minute, 60)
        at_hour, at_minute = bisect_left(self.hours, hour), bisect_left(self.minutes, minute)
        if _is_number_at_position(self.hours, at_hour, hour):
            if _is_number_at_position(self.minutes, at_minute, minute):
                at_second = bisect_right(self.seconds, after_second_of_day)
                if at_second < len(self.seconds):
                    return _to_second_of_day(hour, minute, self.seconds[at_second])
                at_minute += 1
            if at_minute < len(self.minutes):
                return _to_second_of_day(hour, self.minutes[at_minute], self.seconds[0])
            at_hour += 1
        if at_hour < len(self.hours):
            return _to_second_of_day(self.hours[at_hour], self.minutes[0], self.seconds[0])
        return None

    def find_first_matching_date(self, start: date) -> date | None:
        """Returns the first matching day from `start` on; None if there is none."""
        first_year = bisect_left(self.years, start.year)
        for year in self.years[first_year : first_year + _CYCLE]:
            for month in self.months:
                if (year, month) < (start.year, start.month):
                    continue
                fewest = start.day if (year, month) == (start.year, start.month) else 1
                days = self._get_cached_matching_days(*monthrange(year, month))
                position = bisect_left(days, fewest)
                if position < len(days):
                    return date(year, month, days[position])
        return None

    def _get_cached_matching_days(self, weekday_before_first: int, month_days: int) -> tuple[int, ...]:
        kind = (weekday_before_first, month_days)
        if kind not in self._days_by_kind:
            self._days_by_kind[kind] = tuple(self._find_matching_days(weekday_before_first, month_days))
        return self._days_by_kind[kind]

    def _find_matching_days(self, weekday_before_first: int, month_days: int) -> list[int]:
        dates = {min(day, month_days) if day == _LAST else day for day in self.days}
        dates |= {_find_nearest_weekday_or_zero(day, weekday_before_first, month_days) for day in self.nearest}
        matching = []
        for day in range(1, month_days + 1):
            weekday = (weekday_before_first + day) % 7
            in_week = (
                (weekday, _EVERY_WEEK) in self.weekdays
                or (weekday, (day + 6) // 7) in self.weekdays
                or (day + 7 > month_days and (weekday, _LAST_WEEK) in self.weekdays)
            )
            if (day in dates and in_week) if self.needs_both else (day in dates or in_week):
                matching.append(day)
        return matching


def _is_number_at_position(numbers: Sequence[int], position: int, number: int) -> bool:
    return position < len(numbers) and numbers[position] == number


def _to_second_of_day(hour: int, minute: int, second: int) -> int:
    return (hour * 60 + minute) * 60 + second


def _find_nearest_weekday_or_zero(day: int, weekday_before_first: int, month_days: int) -> int:
    """Returns the nearest day from Monday to Friday in the same month; 0 if the month has no such `day`."""
    if day == _LAST:
        day = month_days
    if day > month_days:
        return 0
    weekday = (weekday_before_first + day) % 7
    if weekday == 6:
        return day - 1 if day > 1 else 3
    if weekday == 0:
        return day + 1 if day < month_days else day - 2
    return day


# Parsing: an expression is split into fields, a field into the items of a list.


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # from `low` on
    wildcards: str = "*"


_SECOND, _MINUTE, _HOUR = _Field("second", 0, 59), _Field("minute", 0, 59), _Field("hour", 0, 23)
_DAY = _Field("day of month", 1, 31, wildcards="*?")
_MONTH = _Field("month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"))
_WEEKDAY = _Field("weekday", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), wildcards="*?")
_YEAR = _Field("year", 1, LAST_YEAR)
_RANGE = re.compile(r"(?:(?P<all>[*?])|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>[0-9]+))?", re.ASCII)


@lru_cache(maxsize=4096)
def parse_cron(expression: str) -> Cron:
    """Parses an expression; raises InvalidArgument if it is wrong, or matches no day of any year."""
    if len(expression) > MAX_CHARS:
        raise InvalidArgument(f"cron expression {expression[:40]!r}... has more than {MAX_CHARS} characters")
    try:
        cron = _parse_expression(expression)
        if cron.find_first_matching_date(date.min) is None:
            raise ValueError("it matches no day of any year")
    except ValueError as error:
        raise InvalidArgument(f"cron expression {expression!r}: {error}") from None
    return cron


def _parse_expression(expression: str) -> Cron:
    text = expression.strip()
    if text.startswith("@"):
        if text.lower() not in NICKNAMES:
            raise ValueError(f"the nicknames are {', '.join(NICKNAMES)}")
        text = NICKNAMES[text.lower()]
    fields = text.split()
    if not all(map(str.isascii, fields)):  # some other letters become ASCII in upper case
        raise ValueError("it has a character that is not ASCII")
    fields = [field.upper() for field in fields]
    if not 5 <= len(fields) <= 7:
        raise ValueError(f"it has {len(fields)} fields, must have 5 to 7")
    if len(fields) == 5:
        fields.insert(0, "0")
    second, minute, hour, day, month, weekday, year = fields if len(fields) == 7 else [*fields, "*"]
    needs_both = weekday.startswith("+")
    weekday = weekday.removeprefix("+")
    days, nearest = _read_days_of_month(day)
    return Cron(
        seconds=_read_numbers(_SECOND, second),
        minutes=_read_numbers(_MINUTE, minute),
        hours=_read_numbers(_HOUR, hour),
        days=days,
        nearest=nearest,
        months=_read_numbers(_MONTH, month),
        weekdays=_read_weekdays(weekday),
        needs_both=needs_both or day in ("*", "?") or weekday in ("*", "?"),
        years=_read_numbers(_YEAR, year),
    )


def _read_numbers(field: _Field, text: str) -> Sequence[int]:
    if text == "*":
        return range(field.low, field.high + 1)
    return tuple(sorted({number for item in _split_items(field, text) for number in _read_range(field, item)}))


def _read_days_of_month(text: str) -> tuple[frozenset[int], frozenset[int]]:
    """Returns the days, and those that stand for the weekday nearest to them."""
    days: set[int] = set()
    nearest: set[int] = set()
    for item in _split_items(_DAY, text):
        if item == "L":
            days.add(_LAST)
        elif item == "LW":
            nearest.add(_LAST)
        elif item.endswith("W"):
            nearest.add(_read_number(_DAY, item[:-1]))
        else:
            days.update(_read_range(_DAY, item))
    return frozenset(days), frozenset(nearest)


def _read_weekdays(text: str) -> frozenset[tuple[int, int]]:
    weekdays: set[tuple[int, int]] = set()
    for item in _split_items(_WEEKDAY, text):
        week = _EVERY_WEEK
        which, has_number, number = item.partition("#")
        if has_number:
            if number != "L" and (not number.isdecimal() or not 1 <= int(number) <= 5):
                raise ValueError(f"weekday {item!r} must be followed by a number from 1 to 5, or by L")
            week = _LAST_WEEK if number == "L" else int(number)
        elif item.endswith("L"):
            which, week = item[:-1], _LAST_WEEK
            if "-" in which or "/" in which:
                raise ValueError(f"weekday {item!r} must name a single day")
        if week != _EVERY_WEEK and which[:1] in ("*", "?"):
            raise ValueError(f"weekday {item!r} must name a day")
        weekdays.update((day % 7, week) for day in _read_range(_WEEKDAY, which))
    return frozenset(weekdays)


def _split_items(field: _Field, text: str) -> list[str]:
    items = [item for item in text.split(",") if item]
    if not items or ("," in text and any(item in field.wildcards for item in items)):
        raise ValueError(f"{field.name} {text!r} must name at least one value, and * only alone")
    return items


def _read_range(field: _Field, item: str) -> range:
    found = _RANGE.fullmatch(item)
    if not found or (found["all"] and found["all"] not in field.wildcards):
        raise ValueError(f"{field.name} {item!r} is not a number, a name, a range or a step")
    step = int(found["step"] or 1)
    if not 1 <= step <= _MAX_STEP:
        raise ValueError(f"{field.name} {item!r} has a step of {step}, must be from 1 to {_MAX_STEP}")
    if found["all"]:
        return range(field.low, field.high + 1, step)
    low = high = _read_number(field, found["low"])
    if found["high"]:
        # A range of weekdays may end on Sunday.
        high = 7 if field is _WEEKDAY and found["high"] == "SUN" else _read_number(field, found["high"])
    elif found["step"]:
        high = field.high
    if high < low:
        raise ValueError(f"{field.name} {item!r} ends before it starts")
    return range(low, high + 1, step)


def _read_number(field: _Field, text: str) -> int:
    if text in field.names:
        return field.low + field.names.index(text)
    number = int(text) if text.isascii() and text.isdecimal() else -1
    if not field.low <= number <= field.high:
        names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
        raise ValueError(f"{field.name} {text!r} must be from {field.low} to {field.high}{names}")
    return number
