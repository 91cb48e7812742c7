"""Describes why data does not fit a signature: the path and the expected type, and never a value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from .._core.user_objects import class_name_of
from ..errors import RetryLater, Snooze, printable
from .wire_values import SpecialTypeError

_AT = re.compile(r"^(.*) - at `(?:key` in `)?(.*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(.*)`$")
_WITH_VALUE = re.compile(r"^(Invalid enum value|Invalid value|Object contains unknown field)\b.*$", re.DOTALL)
MAX_PROBLEM_CHARS = 500


class DataMismatch(NamedTuple):
    """Where data does not fit, and why."""

    path: str  # begins with $, which stands for all of the data
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"[:MAX_PROBLEM_CHARS]

    def describe_for_caller(self) -> str:
        """The same for the caller of enqueue(): the path begins with the parameter."""
        return f"{self.path.removeprefix('$.')}: {self.problem}"[:MAX_PROBLEM_CHARS]


# Errors that say nothing about the data, and that leave a run its retries.
UNRELATED_ERRORS = (OSError, MemoryError, RetryLater, Snooze)


def describe_error_of_users_class(
    error: Exception, data: Any, check_parameter: Callable[[str, Any], object]
) -> DataMismatch:
    """Names the parameter whose own class raised an error of another kind than it should; shows no text of it."""
    problem = (
        f"a validator or __post_init__ raised {class_name_of(error)[:100]}: raise ValueError for data that does not fit"
    )
    for name, value in data.items() if isinstance(data, dict) else ():
        try:
            check_parameter(name, value)
        except Exception as raised:  # noqa: BLE001  the class is the user's
            if type(raised) is type(error):
                return DataMismatch(f"$.{printable(str(name), 100)}", problem)
    return DataMismatch("$", problem)


def make_mismatch_of_msgspec_error(error: msgspec.ValidationError) -> DataMismatch:
    """Reads msgspec's message."""
    found = _AT.match(str(error))
    problem, path = (found[1], found[2]) if found else (str(error), "$")
    if error.__cause__ is not None and not isinstance(error.__cause__, SpecialTypeError):
        problem = f"{type(error.__cause__).__name__} in the class of the value"  # its text may show the value
    problem = _WITH_VALUE.sub(r"\1", problem)
    missing = _MISSING.match(problem)
    if missing:
        return DataMismatch(f"{path}.{missing[1]}", "is missing")
    return DataMismatch(path, problem)


def make_mismatch_of_first_pydantic_error(error: Any, field_names: frozenset[str]) -> DataMismatch:
    """Reads pydantic's first error. Keys of dicts are values, and are not shown."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = "$"
    for step in first["loc"]:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if step in field_names else "[...]"
    if first["type"] == "missing":
        return DataMismatch(path, "is missing")
    if first["type"] == "union_tag_invalid":  # pydantic's text shows the tag
        return DataMismatch(path, f"the tag is none of {first['ctx']['expected_tags']}")
    own = {"value_error": "a validator raised ValueError", "assertion_error": "a validator raised AssertionError"}
    return DataMismatch(path, own.get(first["type"], first["msg"]))
