"""When a cron pattern fires in a time zone: the wall-clock times of `cron.py` as instants, by the clocks of `zones.py`.

- Fires are whole seconds, strictly after the instant asked about.
- A time that the clock skips does not exist. A pattern with a single time of day fires as the clock jumps instead,
  so that a daily job is not lost; one with several times goes on with those that exist.
- A time that the clock shows twice counts once, the first time. A pattern for all 24 hours fires both times, so that an
  hourly job has no hole.
"""

from __future__ import annotations

from typing import NamedTuple

from .cron import DAY_S, LAST_WALL, Cron
from .zones import Zone

# Further ahead than this no change of a clock can show a time again: clocks are less than two days apart.
_NEAR_S = 3 * DAY_S
# A pattern whose every time is skipped by a change of the clock has none: calendar and rules repeat after 400 years.
_MAX_OFFSET_CHANGES = 500


class _SearchPosition(NamedTuple):
    """How far the search has come."""

    instant: int  # in UTC
    offset: int  # of the wall clock at that instant
    ruled_out: int  # the last time on the wall clock that cannot be the answer


def find_next_cron_fire_s(cron: Cron, zone: Zone, after_s: int) -> int | None:
    """Returns the first second after that instant at which the pattern fires; None if there is none."""
    if after_s >= LAST_WALL + DAY_S:  # no zone is a day away from UTC
        return None
    position = _make_start_position(cron, zone, after_s)
    changes = 0
    while changes < _MAX_OFFSET_CHANGES and (wall := cron.find_next_after(position.ruled_out)) is not None:
        fire = wall - position.offset  # unless the clock is changed before
        if _can_jump_near_fire(zone, position, fire):
            position = _make_position(zone, fire - _NEAR_S)
            continue
        change = zone.find_first_offset_change(position.instant, fire)
        if change is None:
            return fire
        changes += 1
        offset = zone.find_utc_offset_s(change)
        before, behind = change + position.offset, change + offset  # what the clock shows before and after the change
        is_skipped = before <= wall < behind
        if is_skipped and cron.is_one_time_of_day:
            return change
        # A clock that is put back shows the times from `behind` to `before` again.
        resume = behind if cron.has_all_hours else max(before, behind)
        position = _SearchPosition(change, offset, resume - 1)
    return None


def _make_start_position(cron: Cron, zone: Zone, after_s: int) -> _SearchPosition:
    position = _make_position(zone, after_s)
    if cron.has_all_hours:
        return position
    shown = zone.find_wall_time_before_set_back(after_s)
    if shown is None:
        return position
    return position._replace(ruled_out=shown - 1)  # clocks went back: they have shown all times up to `shown` before


def _make_position(zone: Zone, instant: int) -> _SearchPosition:
    offset = zone.find_utc_offset_s(instant)
    return _SearchPosition(instant, offset, instant + offset)


def _can_jump_near_fire(zone: Zone, position: _SearchPosition, fire: int) -> bool:
    """Returns whether the search may jump to shortly before `fire`, because nothing matches until then."""
    is_long = fire - position.instant > 2 * _NEAR_S
    return is_long and zone.find_first_offset_change(position.instant, position.instant + _NEAR_S) is None
