"""The options of an added job: what a user may pass, how it is checked, and what travels to Redis.

A new option is a field of JobOptions with its meaning, a check in `check_and_make_add_options`, and a field of
AddOptions, which add_with_options.lua reads. `Queue.add`, `Queue.add_bulk` and the encoder take the options that are
listed here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, TypedDict

from ..errors import LONGEST_DELAY_S, InvalidArgument, InvalidType
from .retry_options import BackoffSpec
from .suggestion import make_suggestion_if_any_is_close

Backoff = int | BackoffSpec | Mapping[str, Any]
Delay = float | datetime
IfExists = Literal["keep", "replace", "postpone"]
_CHOICES = ("keep", "replace", "postpone")
LONGEST_MS = 1000 * LONGEST_DELAY_S
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JobOptions(TypedDict, total=False):
    """The options of add() and of each job of add_bulk(), beside name, data and job_id. None means not given.

    The text below each stands in the docstring of Queue.add as well.
    """

    delay_ms: Delay | None
    """run it this many ms later, or at a time (a datetime; a naive one is UTC), by the server's clock"""
    delay: timedelta | None
    """run it that much later"""
    attempts: int | None
    """how many runs it has in all, instead of the worker's max_attempts"""
    backoff: Backoff | None
    """the delays between its runs, instead of the worker's: ms, a BackoffSpec or a mapping of its fields"""
    timeout: timedelta | None
    """how long each of its runs may take, instead of the worker's time: then its handler is cancelled, a thread
    asked to stop, and the run has failed"""
    expires_in: timedelta | None
    """how long it may wait for its start, by the server's clock: then it is not run any more, and dead"""
    unique_for: int | timedelta | None
    """with job_id: for how long (ms or timedelta) there is one job of this id, instead of until it is done"""
    if_exists: IfExists | None
    """with job_id: what a second add does to a first job that still waits: "keep" it, "replace" its data, or "postpone"
    it, which replaces its data and its time"""


OPTION_NAMES = frozenset(JobOptions.__annotations__)
BULK_KEYS = OPTION_NAMES | {"name", "data", "job_id"}
WITH_REPEAT = frozenset({"attempts", "backoff"})  # the options that a repeatable takes as well


class AddOptions(NamedTuple):
    """The options that Redis has to know, as add_with_options.lua takes them."""

    due: str = ""  # "" now, "+ms" that long from now, "ms" at that time; all by the server's clock
    only: str = ""  # "" other jobs may have its id, else what a second add does: keep the first, replace, postpone
    window_ms: int = 0  # how long it keeps other jobs of its id out; 0 until it is done
    expires_ms: int = 0  # how long it may wait for its start; 0 for any time


PLAIN = AddOptions()
UNIQUE = AddOptions(only="keep")  # a job_id and no options


def check_and_make_add_options(job_id: str | None, options: JobOptions, max_delay_ms: int) -> AddOptions:
    """Checks the names of all options, and the values that Redis has to know.

    `check_and_make_retry_override` checks attempts and backoff.
    """
    if not options.keys() <= OPTION_NAMES:
        refuse_unknown_options(options)
    due = _check_delay_and_make_due(options.get("delay_ms"), options.get("delay"), max_delay_ms)
    expires_ms = check_timedelta_as_ms_or_zero_if_none("expires_in", options.get("expires_in"))
    if expires_ms and due and _estimate_ms_until_due(due) >= expires_ms:
        raise InvalidArgument(f"expires_in is {expires_ms} ms, must be longer than the delay: the job would never run")
    unique_for, if_exists = options.get("unique_for"), options.get("if_exists")
    if job_id is None:
        if unique_for is not None or if_exists is not None:
            raise InvalidArgument("unique_for and if_exists say what a second job of one id does: give a job_id, too")
        return AddOptions(due, expires_ms=expires_ms) if due or expires_ms else PLAIN
    if if_exists is not None and if_exists not in _CHOICES:
        raise InvalidArgument(f"if_exists is {if_exists!r}, must be one of {', '.join(_CHOICES)}"[:300])
    window_ms = 0 if unique_for is None else check_span_ms("unique_for", unique_for, low=1)
    return AddOptions(due, if_exists or "keep", window_ms, expires_ms)


def check_timedelta_as_ms_or_zero_if_none(field: str, value: Any) -> int:
    """Checks a timedelta of a millisecond or more, and returns milliseconds, rounded up; 0 if there is none."""
    if value is None:
        return 0
    if not isinstance(value, timedelta):
        raise InvalidType(f"{field} must be a timedelta, not {type(value).__name__} {value!r}"[:300])
    check_span_ms(field, value, low=1)
    return -(-value // timedelta(milliseconds=1))


def _estimate_ms_until_due(due: str) -> int:
    """Returns about how long a job waits until it is due."""
    return int(due) if due.startswith("+") else int(due) - time.time_ns() // 1_000_000


def refuse_unknown_options(options: Mapping[str, Any]) -> None:
    """Raises as Python does for a keyword that a function does not take."""
    if unknown := options.keys() - OPTION_NAMES:
        name = min(unknown)
        suggestion = make_suggestion_if_any_is_close(name, sorted(OPTION_NAMES))
        raise InvalidType(f"Queue.add() got an unexpected keyword argument {name!r}{suggestion}")


def refuse_options_beside_repeat(
    repeat: object, job_id: str | None, wait_replicas: int, options: Mapping[str, Any]
) -> None:
    """Raises for options that contradict `repeat`, and for unknown ones."""
    refuse_unknown_options(options)
    if repeat is None:
        raise InvalidArgument("missed_fires says what a repeatable does: give repeat, too")
    for option, value in {"job_id": job_id, "wait_replicas": wait_replicas or None, **options}.items():
        if value is not None and option not in WITH_REPEAT:
            raise InvalidArgument(f"{option} contradicts repeat: a repeatable has its own times and ids")


def check_span_ms(field: str, value: Any, low: int = 0) -> int:
    """Checks a span of time in milliseconds or as a timedelta, and returns whole milliseconds."""
    if isinstance(value, timedelta):
        number: int | float = value / timedelta(milliseconds=1)
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidType(f"{field} must be milliseconds or a timedelta, not {type(value).__name__} {value!r}"[:300])
    else:
        number = value
    if isinstance(number, float) and not math.isfinite(number):
        raise InvalidArgument(f"{field} is {number}, must be a finite number")
    if number < low:
        raise InvalidArgument(f"{field} is {_format_ms(number)} ms, must be at least {low}")
    if number > LONGEST_MS:  # also because the server's arithmetic ends somewhere
        raise InvalidArgument(f"{field} is {_format_ms(number)} ms, must be at most {LONGEST_MS}, 100 years")
    return int(number)


def _format_ms(number: float) -> str:
    return f"{number:g}" if abs(number) < 1e300 else "far too many"  # which neither float nor str takes


def _check_delay_and_make_due(delay_ms: Any, delay: Any, max_delay_ms: int) -> str:
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
        _refuse_delay_over_max(at_ms - time.time_ns() // 1_000_000, max_delay_ms)
        return str(max(at_ms, 0))
    if isinstance(delay_ms, timedelta):
        raise InvalidType("delay_ms must be an int, a float or a datetime; a timedelta goes into delay")
    from_now_ms = check_delay_ms("delay_ms" if delay is None else "delay", delay_ms, max_delay_ms)
    return f"+{from_now_ms}" if from_now_ms else ""


def check_delay_ms(field: str, value: Any, max_delay_ms: int) -> int:
    """Checks a delay against the queue's max_delay_secs, and returns it in milliseconds."""
    delay_ms = check_span_ms(field, value)
    _refuse_delay_over_max(delay_ms, max_delay_ms)
    return delay_ms


def _refuse_delay_over_max(delay_ms: int, max_delay_ms: int) -> None:
    if max_delay_ms and delay_ms > max_delay_ms:
        raise InvalidArgument(
            f"a delay of {delay_ms} ms is longer than max_delay_secs={max_delay_ms // 1000} allows; "
            "Queue(max_delay_secs=0) lifts the bound"
        )
