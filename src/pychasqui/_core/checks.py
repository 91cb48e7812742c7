"""Checks of values that a user passes. An error names the field, the value and the bound."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..errors import InvalidArgument, InvalidType
from .limits import MAX_JOB_ID_BYTES, MAX_NAME_BYTES, MAX_QUEUE_NAME_BYTES, RELEASED
from .user_objects import to_plain_str

MAX_INT = 2**64 - 1  # the packer of commands ends the process at one of some thousand digits


def check_queue_name(value: Any) -> str:
    """Checks that the name fits in one line and cannot reach the keys of another queue."""
    if not isinstance(value, str):
        raise InvalidType(f"queue name must be a str, not {type(value).__name__}")
    if not value.strip():
        raise InvalidArgument(f"queue name {value[:20]!r} must not be blank")
    if "}" in value:  # {chasqui:a}:b} would lie among the keys of queue a
        raise InvalidArgument(f"queue name {value[:200]!r} must not hold a }}, which ends a queue's part of a key")
    if not value.isprintable():  # neither can what UTF-8 cannot hold
        raise InvalidArgument(f"queue name {value[:200]!r} holds a character that cannot be printed")
    if len(value.encode()) > MAX_QUEUE_NAME_BYTES:
        raise InvalidArgument(f"queue name {value[:40]!r}... is longer than {MAX_QUEUE_NAME_BYTES} bytes")
    return value


def is_valid_queue_name(name: str) -> bool:
    """Returns whether a queue can have this name."""
    try:
        check_queue_name(name)
    except InvalidArgument:
        return False
    return True


def check_and_encode_job_name(value: Any) -> bytes:
    """Returns the name's bytes."""
    if not isinstance(value, str):
        raise InvalidType(f"name must be a str, not {type(value).__name__}")
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"name {value[:200]!r} holds half of a surrogate pair, which UTF-8 cannot hold") from None
    if len(encoded) > MAX_NAME_BYTES:
        raise InvalidArgument(f"name {value[:40]!r}... has {len(encoded)} bytes, at most {MAX_NAME_BYTES} are allowed")
    return encoded


def check_job_ids(value: Any) -> list[str]:
    """Checks several ids of jobs that may exist."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidType(f"job_ids must be several ids, not {type(value).__name__} {value!r}"[:300])
    return [check_job_id_of_lookup(job_id) for job_id in value]


def check_job_id_of_lookup(value: Any) -> str:
    """Checks the id of a job that may exist: any id that another producer can have written."""
    if not isinstance(value, str):
        raise InvalidArgument(f"job_id must be a str, not {value!r}"[:300])
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"job_id {value[:40]!r} holds half of a surrogate pair, which UTF-8 cannot hold"
        ) from None
    return value


def check_new_job_id(value: Any) -> str:
    """Checks the id of a job to be added."""
    if not isinstance(value, str):
        raise InvalidArgument(f"job_id must be a str that is not blank, not {value!r}"[:300])
    if not value.strip():
        raise InvalidArgument(f"job_id {value[:20]!r} must not be blank")
    if len(value.encode("utf-8", "surrogatepass")) > MAX_JOB_ID_BYTES:
        raise InvalidArgument(f"job_id {value[:40]!r}... is longer than {MAX_JOB_ID_BYTES} bytes")
    if not value.isprintable():
        raise InvalidArgument(f"job_id {value[:200]!r} holds a character that cannot be printed")
    return value if type(value) is str else to_plain_str(value)  # the encoder takes no subclasses


def check_int(field: str, value: Any, low: int, high: int | None = None, *, default: int | None = None) -> int:
    """Checks an int between two bounds. None means the default, if there is one."""
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"{field} must be an int, not {type(value).__name__} {value!r}"[:300])
    if value < low or value > (MAX_INT if high is None else high):
        bound = f"at least {low}" if high is None else f"from {low} to {high}"
        number = str(value) if abs(value) < 10**40 else "a number of more than 40 digits"
        raise InvalidArgument(f"{field} is {number}, must be {bound}")
    return value


def check_is_iterable(field: str, value: Any, of_what: str) -> None:
    if type(value) is not list and not isinstance(value, Iterable):  # hot: 0.3 us a bulk
        raise InvalidType(f"{field} must be a list {of_what}, not {type(value).__name__}")


def check_bool(field: str, value: Any) -> bool:
    """Checks that the value is True or False; 0 and 1 are refused."""
    if not isinstance(value, bool):
        raise InvalidType(f"{field} must be True or False, not {type(value).__name__} {value!r}"[:300])
    return value


def check_text(field: str, value: Any) -> str:
    """Checks that the value is a str."""
    if not isinstance(value, str):
        raise InvalidType(f"{field} must be a str, not {type(value).__name__} {value!r}"[:300])
    return value


def check_seconds(field: str, value: Any) -> float:
    """Checks a finite number of seconds above 0, and returns it as a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidType(f"{field} must be a number of seconds, not {type(value).__name__} {value!r}"[:300])
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not 0 < seconds < math.inf:  # also false for nan
        raise InvalidArgument(f"{field} is {seconds:g}, must be a finite number above 0")
    return seconds


def check_consumer_name(field: str, value: Any) -> str:
    """Checks the name of a consumer or of a consumer group."""
    check_text(field, value)
    if not value.strip() or not value.isprintable():
        raise InvalidArgument(f"{field} {value[:100]!r} must be printable and not blank")
    return str(value)


def check_consumer_id(value: Any) -> str:
    """Checks a worker's name in its consumer group."""
    name = check_consumer_name("consumer_id", value)
    if name == RELEASED:
        raise InvalidArgument(f"consumer_id {name!r} is the name under which jobs are handed back; take another")
    return name


def check_metrics_address(host: Any, port: Any) -> tuple[str, int]:
    """Checks the address to listen on; port 0 takes any free port."""
    return check_text("metrics_host", host), check_int("metrics_port", port, 0, 65535)
