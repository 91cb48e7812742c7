"""Time zones: the offset of a zone from UTC, and when it changes. All times are whole seconds.

The rules come from the machine's zone database through zoneinfo, which reads it once for each zone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from ..errors import InvalidArgument

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET = re.compile(r"([+-])([0-9]{1,2}):?([0-9]{2})")
# A zone database also contains these, which are refused. The first three depend on the machine, the last two count
# leap seconds or are copies.
_REFUSED_NAMES = ("localtime", "posixrules", "Factory", "right/", "posix/")
_STEP_S = 7 * 86_400  # no zone changes its clock twice within a week
# From then on every zone follows a rule that repeats each year, or none. The longest list of single changes, that of
# Morocco, ends in 2087.
_RULES_ONLY_FROM = 4_102_444_800  # 2100-01-01
_A_YEAR_AND_MORE = 400 * 86_400


class UnknownZone(InvalidArgument):
    """The zone database of this machine does not have the name. That of another may: it is newer, or there at all."""


class NoZoneDatabase(UnknownZone):
    """This machine has no zone database: whether the name is one, it cannot know."""


class Zone:
    """The rules of one zone: its wall clock shows UTC + find_utc_offset_s()."""

    __slots__ = ("_rules",)

    def __init__(self, rules: tzinfo) -> None:
        self._rules = rules

    def find_utc_offset_s(self, at_s: int) -> int:
        """Returns the offset from UTC at this time."""
        return _to_seconds(self._to_local_time(at_s).utcoffset())

    def find_first_offset_change(self, after_s: int, until_s: int) -> int | None:
        """Returns when the offset first differs from that at `after_s`; None if it is the same up to `until_s`."""
        if isinstance(self._rules, timezone):
            return None
        before = self.find_utc_offset_s(after_s)
        # If the offset does not change within a year by then, it never changes again.
        until_s = min(until_s, max(after_s, _RULES_ONLY_FROM) + _A_YEAR_AND_MORE)
        while after_s < until_s:
            step_end = min(after_s + _STEP_S, until_s)
            if self.find_utc_offset_s(step_end) != before:
                return self._bisect_offset_change(after_s, step_end, before)
            after_s = step_end
        return None

    def find_wall_time_before_set_back(self, at_s: int) -> int | None:
        """If this time is shown for the second time, returns what the clock showed when it was put back; else None."""
        local = self._to_local_time(at_s)
        if not local.fold:
            return None
        first_offset = _to_seconds(local.replace(fold=0).utcoffset())
        put_back = self._bisect_offset_change(
            at_s - (first_offset - _to_seconds(local.utcoffset())), at_s, first_offset
        )
        return put_back + first_offset

    def _bisect_offset_change(self, low: int, high: int, offset_before_s: int) -> int:
        """Returns the first second of (low, high] at which the offset is no longer `offset_before_s`."""
        while high - low > 1:
            middle = (low + high) // 2
            if self.find_utc_offset_s(middle) == offset_before_s:
                low = middle
            else:
                high = middle
        return high

    def _to_local_time(self, at_s: int) -> datetime:
        return (_EPOCH + timedelta(seconds=at_s)).astimezone(self._rules)


def _to_seconds(offset: timedelta | None) -> int:
    assert offset is not None
    return offset // timedelta(seconds=1)


@lru_cache(maxsize=1024)
def find_zone(name: str | None) -> Zone:
    """Finds a zone by IANA name, offset (+02:00, -0530) or UTC (None, "", Z); raises InvalidArgument if unknown."""
    trimmed = (name or "").strip()
    if trimmed in ("", "Z") or trimmed.upper() == "UTC":
        return Zone(UTC)
    if found := _OFFSET.fullmatch(trimmed):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        if offset >= timedelta(days=1):
            raise InvalidArgument(f"tz {name!r} is an offset of {offset}, must be less than 24 hours")
        return Zone(timezone(-offset if found[1] == "-" else offset))
    if trimmed.startswith(_REFUSED_NAMES) or len(trimmed) > 100:
        raise _make_unknown_zone_error(trimmed)
    try:
        return Zone(ZoneInfo(trimmed))
    except LookupError as error:
        raise _make_unknown_zone_error(trimmed, UnknownZone if _has_zone_database() else NoZoneDatabase) from error
    except (OSError, ValueError) as error:  # which one depends on why the file cannot be read
        raise _make_unknown_zone_error(trimmed) from error


def _has_zone_database() -> bool:
    try:
        ZoneInfo("Europe/London")  # every database has it, also one of a few names
    except (LookupError, OSError, ValueError):
        return False
    return True


def _make_unknown_zone_error(name: str, kind: type[InvalidArgument] = InvalidArgument) -> InvalidArgument:
    return kind(
        f"tz {name[:100]!r} must be an IANA name (Europe/Berlin), an offset (+02:00) or UTC; if every name is refused, "
        "this machine has no zone database: install tzdata"
    )
