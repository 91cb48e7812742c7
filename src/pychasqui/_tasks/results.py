"""What a task returns: as it is stored, and as it is read."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from ..errors import DecodeError
from .data_error import read_msgspec_error
from .definition import TaskDefinition
from .pydantic_types import DataMismatchError
from .unfinished_results import drop_awaitable
from .wire_values import SCALARS, to_wire_values


def pack_result_if_possible(result: Any) -> Any:
    """The result as MessagePack holds it. One that cannot travel stays as it is: the worker reports it.

    Raises TypeError for a coroutine: what it was to do has not been done, and the job must not count as done.
    """
    if type(result) in SCALARS:
        return result
    try:
        return to_wire_values(result)
    except BaseException:  # noqa: BLE001  the result is the user's object, which may raise anything
        if not inspect.iscoroutine(result):
            return result
    drop_awaitable(result)
    name = getattr(result, "__qualname__", "coroutine")
    raise TypeError(f"the task returned the coroutine {name}, which it did not await: `return await ...` runs it")


def convert_stored_result(definition: TaskDefinition, job_id: str, value: Any) -> Any:
    """The stored result as the type that the task is annotated to return."""
    try:
        return definition.convert_result(value)
    except msgspec.ValidationError as error:
        problem = str(read_msgspec_error(error))
    except DataMismatchError as error:
        problem = str(error)
    raise DecodeError(f"the result of job {job_id[:100]!r} of task {definition.name!r} does not fit: {problem}")
