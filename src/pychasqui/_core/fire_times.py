"""The windows of a pattern after an instant, in ms since 1970; `cron_fires.py` has the rules of wall clocks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from .checks import check_int
from .cron import parse_cron
from .cron_fires import find_next_cron_fire_s
from .repeat_pattern import RepeatPattern
from .zones import find_zone

# Windows after the year 9999 count as never; the score of a sorted set holds all milliseconds before it exactly.
LAST_MS = 253_402_300_799_999


def next_fire(pattern: RepeatPattern, after_ms: int) -> int | None:
    """Returns the first window strictly after that instant; None if there is none."""
    check_int("after_ms", after_ms, 0)
    if pattern.interval_ms is not None:
        fire_ms = after_ms + pattern.interval_ms
    else:
        assert pattern.expression is not None
        cron, zone = parse_cron(pattern.expression), find_zone(pattern.tz)
        second = find_next_cron_fire_s(cron, zone, after_ms // 1000) if after_ms < LAST_MS else None
        if second is None:
            return None
        fire_ms = second * 1000
    return fire_ms if fire_ms <= LAST_MS else None


def next_fires(pattern: RepeatPattern, n: int, after_ms: int) -> list[int]:
    """Returns the first `n` windows strictly after that instant; fewer if the pattern has no more."""
    return list(islice(_iterate_fires_ms(pattern, after_ms), check_int("n", n, 0)))


def _iterate_fires_ms(pattern: RepeatPattern, after_ms: int) -> Iterator[int]:
    fire_ms = next_fire(pattern, after_ms)
    while fire_ms is not None:
        yield fire_ms
        fire_ms = next_fire(pattern, fire_ms)
