"""On what terms a job is added beyond its name and data: when it is due, and whether it is the only one of its id."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from ..errors import LONGEST_DELAY_S, InvalidArgument, InvalidType

IfExists = Literal["keep", "replace", "postpone"]
_CHOICES = ("keep", "replace", "postpone")
LONGEST_MS = 1000 * LONGEST_DELAY_S
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AddOptions(NamedTuple):
    """As add_on_terms.lua takes them."""

    due: str = ""  # "" now, "+ms" so long from now, "ms" at that time; all by the server's clock
    only: str = ""  # "" there may be others of its id, else what a second one does: keep the first, replace, postpone
    window_ms: int = 0  # how long it keeps others of its id out; 0 until it is done


PLAIN = AddOptions()


def read_options(
    job_id: str | None,
    delay_ms: float | datetime | None,
    delay: timedelta | None,
    unique_for: int | timedelta | None,
    if_exists: IfExists | None,
    max_delay_ms: int,
) -> AddOptions:
    due = _read_due(delay_ms, delay, max_delay_ms)
    if job_id is None:
        if unique_for is not None or if_exists is not None:
            raise InvalidArgument("unique_for and if_exists say what a second job of one id does: give a job_id, too")
        return AddOptions(due) if due else PLAIN
    if if_exists is not None and if_exists not in _CHOICES:
        raise InvalidArgument(f"if_exists is {if_exists!r}, must be one of {', '.join(_CHOICES)}"[:300])
    window_ms = 0 if unique_for is None else read_ms("unique_for", unique_for, low=1)
    return AddOptions(due, if_exists or "keep", window_ms)


def read_ms(field: str, value: Any, low: int = 0) -> int:
    """A span of time, in milliseconds or as a timedelta."""
    if isinstance(value, timedelta):
        number: int | float = value / timedelta(milliseconds=1)
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidType(f"{field} must be milliseconds or a timedelta, not {type(value).__name__} {value!r}"[:300])
    else:
        number = value
    if isinstance(number, float) and not math.isfinite(number):
        raise InvalidArgument(f"{field} is {number}, must be a finite number")
    if number < low:
        raise InvalidArgument(f"{field} is {_shown(number)} ms, must be at least {low}")
    if number > LONGEST_MS:  # also because the server's arithmetic ends somewhere
        raise InvalidArgument(f"{field} is {_shown(number)} ms, must be {LONGEST_MS} at the most, 100 years")
    return int(number)


def _shown(number: float) -> str:
    return f"{number:g}" if abs(number) < 1e300 else "far too many"  # which neither float nor str takes


def _read_due(delay_ms: Any, delay: Any, max_delay_ms: int) -> str:
    if delay is not None:
        if delay_ms is not None:
            raise InvalidArgument("delay and delay_ms contradict each other: give one of them")
        if not isinstance(delay, timedelta):
            raise InvalidType(f"delay must be a timedelta, not {type(delay).__name__} {delay!r}"[:300])
        delay_ms = delay / timedelta(milliseconds=1)
    if delay_ms is None:
        return ""
    if isinstance(delay_ms, datetime):
        at = delay_ms if delay_ms.tzinfo else delay_ms.replace(tzinfo=UTC)
        at_ms = -((_EPOCH - at) // timedelta(milliseconds=1))  # rounded up: never early
        _check_cap(at_ms - time.time_ns() // 1_000_000, max_delay_ms)
        return str(max(at_ms, 0))
    if isinstance(delay_ms, timedelta):
        raise InvalidType("delay_ms must be an int, a float or a datetime; a timedelta goes into delay")
    from_now_ms = read_delay("delay_ms" if delay is None else "delay", delay_ms, max_delay_ms)
    return f"+{from_now_ms}" if from_now_ms else ""


def read_delay(field: str, value: Any, max_delay_ms: int) -> int:
    """A span of time within the queue's bound."""
    delay_ms = read_ms(field, value)
    _check_cap(delay_ms, max_delay_ms)
    return delay_ms


def _check_cap(delay_ms: int, max_delay_ms: int) -> None:
    if max_delay_ms and delay_ms > max_delay_ms:
        raise InvalidArgument(
            f"a delay of {delay_ms} ms is longer than max_delay_secs={max_delay_ms // 1000} allows; 0 lifts the bound"
        )
