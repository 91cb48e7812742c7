"""The options of a task and of one call of it: their meaning, their checks, and what Queue.add gets. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

from .._core.checks import check_queue_name
from .._core.options import IfExists, check_and_make_add_options
from .._core.retry_options import LONGEST_DELAY_MS, BackoffSpec, check_and_make_retry_override
from .._core.run_timeouts import check_timeout_s
from ..errors import InvalidArgument, InvalidType
from .foreign_option_names import describe_unknown_option

__all__ = ["IfExists", "SendOptions", "make_add_options", "check_send_options", "check_task_options"]


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


OPTIONS_OF_ONE_CALL = ("delay", "at", "job_id")  # options that a task itself cannot have
OPTIONS_OF_A_TASK = ("name", "aliases", *(one for one in SendOptions.__annotations__ if one not in OPTIONS_OF_ONE_CALL))
OPTIONS_OF_A_TASK += ("unique_by", "give_up_on")


def check_task_options(owner: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of @app.task that are given; the message for a wrong one begins with `owner`."""
    for name in options:
        if name in OPTIONS_OF_ONE_CALL:
            raise InvalidType(f"{owner}: {name} is an option of one call: with_options({name}=...).enqueue(...)")
        if name not in OPTIONS_OF_A_TASK:
            raise InvalidType(f"{owner}: {describe_unknown_option(name, OPTIONS_OF_A_TASK)}")
    given = check_send_options(owner, options)
    checked: Any = {name: given[name] for name in ("expires_in", "unique_for", "if_exists") if name in given}
    check_and_make_add_options("any id", checked, 0)  # here, and not when the first job is added
    return given


def check_send_options(owner: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of one call that are given; the message for a wrong one begins with `owner`."""
    for name in options:
        if name not in SendOptions.__annotations__:
            if name in OPTIONS_OF_A_TASK:
                raise InvalidType(f"{owner}: {name} is an option of the task itself: @app.task({name}=...)")
            raise InvalidType(f"{owner}: {describe_unknown_option(name, SendOptions.__annotations__)}")
    given = {name: value for name, value in options.items() if value is not None}
    for name in ("delay", "unique_for", "timeout", "expires_in"):
        _check_option_type(owner, given, name, timedelta, "a timedelta")
    _check_option_type(owner, given, "backoff", (timedelta, BackoffSpec), "a timedelta or a BackoffSpec")
    _check_option_type(owner, given, "at", datetime, "a datetime with a time zone")
    if "at" in given and given["at"].tzinfo is None:
        raise InvalidArgument(f"{owner}: at is a datetime without a time zone: add one, as in datetime.now(UTC)")
    if "at" in given and "delay" in given:
        raise InvalidArgument(f"{owner}: at and delay contradict each other: give one of them")
    if "timeout" in given:
        check_timeout_s(f"{owner}: timeout", given["timeout"])
    if "queue" in given:
        check_queue_name(given["queue"])
    check_and_make_retry_override(given.get("attempts"), _make_backoff_that_workers_keep(given.get("backoff")))
    return given


def make_add_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of Queue.add for checked options."""
    options = {name: value for name, value in given.items() if name not in ("queue", "at", "backoff")}
    if "at" in given:
        options["delay_ms"] = given["at"]
    if "backoff" in given:
        options["backoff"] = _make_backoff_that_workers_keep(given["backoff"])
    return options


def _make_backoff_that_workers_keep(backoff: timedelta | BackoffSpec | None) -> int | BackoffSpec | None:
    """A long delay is sent with itself as its bound: by default, workers of both kinds would cut it to 30 s."""
    if isinstance(backoff, timedelta):
        delay_ms = backoff // timedelta(milliseconds=1)
        return delay_ms if delay_ms <= LONGEST_DELAY_MS else BackoffSpec("fixed", delay_ms, delay_ms)
    return backoff


def _check_option_type(owner: str, given: Mapping[str, Any], name: str, kind: Any, expected: str) -> None:
    if name in given and not isinstance(given[name], kind):
        wrong = type(given[name])
        hint = ": write timedelta(seconds=...)" if wrong in (int, float) and name != "at" else ""
        raise InvalidType(f"{owner}: {name} must be {expected}, not {wrong.__name__}{hint}")
