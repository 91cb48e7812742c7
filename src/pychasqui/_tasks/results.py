"""What a task returns: as it is stored, and as it is read."""

from __future__ import annotations

from types import CoroutineType
from typing import Any

import msgspec

from ..errors import DecodeError, RetryLater, Snooze, UnrecoverableError
from .data_error import make_mismatch_of_msgspec_error
from .definition import TaskDefinition
from .pydantic_types import DataMismatchError
from .unfinished_results import close_if_coroutine
from .wire_values import SCALARS, to_wire_values


def pack_result_if_possible(result: Any) -> Any:
    """The result as MessagePack holds it. One that cannot travel stays as it is: the worker reports it.

    Raises TypeError for a coroutine, and for an error that asks for another end: the job must not count as done.
    """
    if type(result) in SCALARS:
        return result
    try:
        return to_wire_values(result)
    except BaseException:  # noqa: BLE001  the result is the user's object, which may raise anything
        kind = type(result)
    if kind is CoroutineType:
        close_if_coroutine(result)
        raise TypeError(f"the task returned {result.__qualname__}() without awaiting it: `return await ...` runs it")
    if issubclass(kind, (RetryLater, Snooze, UnrecoverableError)):
        raise TypeError(f"the task returned {kind.__name__}: `raise {kind.__name__}(...)` has an effect")
    return result


def convert_stored_result(definition: TaskDefinition, job_id: str, value: Any) -> Any:
    """The stored result as the type that the task is annotated to return."""
    try:
        return definition.convert_result_to_annotated_type(value)
    except msgspec.ValidationError as error:
        problem = str(make_mismatch_of_msgspec_error(error))
    except DataMismatchError as error:
        problem = str(error)
    raise DecodeError(f"the result of job {job_id[:100]!r} of task {definition.name!r} does not fit: {problem}")
