"""What may be a handler: checked when a worker is made, so that not every job has to find out."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from types import FunctionType, MethodType
from typing import Any, TypeVar

from .._core.user_objects import class_name_of, safe_str
from ..errors import InvalidType
from ..job import Job

Handler = Callable[[Job], Awaitable[Any]] | Callable[[Job], Any]
StartsTask = TypeVar("StartsTask", bound=Callable[..., Awaitable[Any]])


def check_handler(handler: Any) -> Handler:
    if not callable(handler):
        raise InvalidType(f"handler is a {class_name_of(handler)[:100]}, must be a function that takes a job")
    for function in (_unwrap_partials(handler), type(handler).__call__):
        if _is_generator_function(function):
            raise InvalidType(
                f"handler {_describe_handler(handler)} is a generator function: to call it runs nothing of its body. "
                "Make it a function that returns, plain or async, without yield"
            )
    _check_callable_with_job_alone(handler)
    return handler  # type: ignore[no-any-return]


def is_async_handler(handler: Handler) -> bool:
    """Returns True also for an object whose __call__ is async, and for a partial of an async function."""
    function = handler.__func__ if type(handler) is MethodType else handler
    if type(function) is FunctionType and getattr(function, _RETURNS_AWAITABLE, False):
        return True
    return inspect.iscoroutinefunction(_unwrap_partials(handler)) or inspect.iscoroutinefunction(type(handler).__call__)


_RETURNS_AWAITABLE = "_returns_awaitable"


def returning_awaitable(function: StartsTask) -> StartsTask:
    """Marks a plain function that returns an awaitable at once and runs nothing that blocks: it needs no thread."""
    setattr(function, _RETURNS_AWAITABLE, True)
    return function


def _unwrap_partials(handler: Any) -> Any:
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler


def _is_generator_function(function: Any) -> bool:
    if inspect.isasyncgenfunction(function):
        return True
    # types.coroutine makes one that can be awaited
    is_awaitable = getattr(getattr(function, "__code__", None), "co_flags", 0) & inspect.CO_ITERABLE_COROUTINE
    return inspect.isgeneratorfunction(function) and not is_awaitable


def _check_callable_with_job_alone(handler: Any) -> None:
    """Refuses what cannot be called with a job alone. A callable that does not show its signature is accepted."""
    try:
        # Not that of what a decorator wraps: what is called is the decorator's function.
        signature = inspect.signature(handler, follow_wrapped=False)
    except Exception:  # noqa: BLE001  functions of C have none, and a foreign __signature__ may raise anything
        return
    try:
        signature.bind(None)
    except TypeError as error:
        takes = f"({error}); it takes {safe_str(signature)}"[:300]
        raise InvalidType(
            f"handler {_describe_handler(handler)} cannot be called with a job as its only argument {takes}"
        ) from None


def _describe_handler(handler: Any) -> str:
    name = getattr(_unwrap_partials(handler), "__qualname__", None)
    return repr(name[:100]) if type(name) is str else f"of class {class_name_of(handler)[:100]}"
