"""Time zones: how far a zone's wall clock is from UTC, and when that changes. All times are whole seconds.

Rules come from the machine's zone database by way of zoneinfo, which reads it once for each zone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from ..errors import InvalidArgument

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET = re.compile(r"([+-])([0-9]{1,2}):?([0-9]{2})")
# A zone database also holds these. The first few depend on the machine, the last two count leap seconds or are copies.
_NO_ZONES = ("localtime", "posixrules", "Factory", "right/", "posix/")
_LOOK_S = 7 * 86_400  # no zone changes its clock twice within a week
# By then every zone has come to the rule that it repeats each year, or to none. The longest list of single changes is
# that of Morocco, which ends in 2087.
_RULES_ONLY_FROM = 4_102_444_800  # 2100-01-01
_A_YEAR_AND_MORE = 400 * 86_400


class Zone:
    """A wall clock shows UTC + offset()."""

    __slots__ = ("_rules",)

    def __init__(self, rules: tzinfo) -> None:
        self._rules = rules

    def offset(self, at: int) -> int:
        return _seconds(self._local(at).utcoffset())

    def first_change(self, after: int, until: int) -> int | None:
        """When the offset first becomes another than it is at `after`; None if it stays to the end of `until`."""
        if isinstance(self._rules, timezone):
            return None
        before = self.offset(after)
        # A clock that is not changed in such a year is never changed again: there is no need to look further.
        until = min(until, max(after, _RULES_ONLY_FROM) + _A_YEAR_AND_MORE)
        while after < until:
            look = min(after + _LOOK_S, until)
            if self.offset(look) != before:
                return self._narrow(after, look, before)
            after = look
        return None

    def shown_before(self, at: int) -> int | None:
        """If the wall clock shows this time for the second time: what it showed when it was put back."""
        local = self._local(at)
        if not local.fold:
            return None
        first_offset = _seconds(local.replace(fold=0).utcoffset())
        put_back = self._narrow(at - (first_offset - _seconds(local.utcoffset())), at, first_offset)
        return put_back + first_offset

    def _narrow(self, low: int, high: int, before: int) -> int:
        """The first second of (low, high] at which the offset is no longer `before`."""
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset(middle) == before:
                low = middle
            else:
                high = middle
        return high

    def _local(self, at: int) -> datetime:
        return (_EPOCH + timedelta(seconds=at)).astimezone(self._rules)


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None
    return offset // timedelta(seconds=1)


@lru_cache(maxsize=1024)
def find_zone(name: str | None) -> Zone:
    """By its IANA name, as an offset (+02:00, -0530), or UTC (None, "", Z); InvalidArgument if there is none."""
    trimmed = (name or "").strip()
    if trimmed in ("", "Z") or trimmed.upper() == "UTC":
        return Zone(UTC)
    if found := _OFFSET.fullmatch(trimmed):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        if offset >= timedelta(days=1):
            raise InvalidArgument(f"tz {name!r} is an offset of {offset}, must be less than 24 hours")
        return Zone(timezone(-offset if found[1] == "-" else offset))
    if trimmed.startswith(_NO_ZONES) or len(trimmed) > 100:
        raise _unknown(trimmed)
    try:
        return Zone(ZoneInfo(trimmed))
    except (OSError, ValueError, LookupError) as error:  # by the way in which there is no such file
        raise _unknown(trimmed) from error


def _unknown(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"tz {name[:100]!r} must be an IANA name (Europe/Berlin), an offset (+02:00) or UTC; if every name is refused, "
        "this machine has no zone database: install tzdata"
    )
