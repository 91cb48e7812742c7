"""The options of a task and of one call of it: their meaning, their checks, and what Queue.add gets. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

from .._core.checks import check_queue_name
from .._core.options import IfExists
from .._core.retry_options import BackoffSpec, make_retry_override
from .._core.run_timeouts import check_timeout_s
from ..errors import InvalidArgument, InvalidType

__all__ = ["IfExists", "SendOptions", "make_add_options", "check_send_options"]


class SendOptions(TypedDict, total=False):
    """The options of with_options(). None means not given."""

    queue: str | None
    """the queue to send it to, instead of the task's own"""
    delay: timedelta | None
    """run it that much later"""
    at: datetime | None
    """run it at this time, which has a time zone"""
    attempts: int | None
    """how many runs it has in all"""
    backoff: timedelta | BackoffSpec | None
    """the delays between its runs"""
    timeout: timedelta | None
    """how long each of its runs may take; only of a task that is an async def"""
    expires_in: timedelta | None
    """how long it may wait for its start: then it is not run any more, and dead"""
    job_id: str | None
    """there is one job of this id until it is done"""
    unique_for: timedelta | None
    """for how long there is one job of its id, instead of until it is done"""
    if_exists: IfExists | None
    """what a second job of its id does to a first one that still waits: keep, replace or postpone"""


def check_send_options(what: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that are given; the message for a wrong one begins with `what`."""
    if unknown := options.keys() - SendOptions.__annotations__.keys():
        known = ", ".join(SendOptions.__annotations__)
        raise InvalidType(f"{what}: there is no option {min(unknown)!r}; the options are {known}")
    given = {name: value for name, value in options.items() if value is not None}
    for name in ("delay", "unique_for", "timeout", "expires_in"):
        _check_option_type(what, given, name, timedelta, "a timedelta")
    _check_option_type(what, given, "backoff", (timedelta, BackoffSpec), "a timedelta or a BackoffSpec")
    _check_option_type(what, given, "at", datetime, "a datetime with a time zone")
    if "at" in given and given["at"].tzinfo is None:
        raise InvalidArgument(f"{what}: at is a datetime without a time zone: add one, as in datetime.now(UTC)")
    if "at" in given and "delay" in given:
        raise InvalidArgument(f"{what}: at and delay contradict each other: give one of them")
    if "timeout" in given:
        check_timeout_s(f"{what}: timeout", given["timeout"])
    if "queue" in given:
        check_queue_name(given["queue"])
    make_retry_override(given.get("attempts"), _backoff_for_add(given.get("backoff")))
    return given


def make_add_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of Queue.add for checked options."""
    options = {name: value for name, value in given.items() if name not in ("queue", "at", "backoff")}
    if "at" in given:
        options["delay_ms"] = given["at"]
    if "backoff" in given:
        options["backoff"] = _backoff_for_add(given["backoff"])
    return options


def _backoff_for_add(backoff: timedelta | BackoffSpec | None) -> int | BackoffSpec | None:
    return backoff // timedelta(milliseconds=1) if isinstance(backoff, timedelta) else backoff


def _check_option_type(what: str, given: Mapping[str, Any], name: str, kind: Any, expected: str) -> None:
    if name in given and not isinstance(given[name], kind):
        raise InvalidType(f"{what}: {name} must be {expected}, not {type(given[name]).__name__}")
