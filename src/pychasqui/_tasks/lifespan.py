"""The lifespan of an app, and its middlewares: made once, when workers start."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidType
from ..job import Job
from .injection import Provider, close_dependencies, enter_generator

Call = Callable[[], Awaitable[Any]]
Middleware = Callable[[Job, Call], Awaitable[Any]]
Lifespan = Callable[[], AsyncIterator[Any]]


def check_lifespan(function: Any) -> None:
    """Refuses what workers could not run as a lifespan."""
    if not inspect.isasyncgenfunction(function):
        is_context_manager = inspect.isasyncgenfunction(getattr(function, "__wrapped__", None))
        hint = ": leave out @asynccontextmanager" if is_context_manager else ""
        raise InvalidType(f"a lifespan is an async def that yields once{hint}")
    if not _can_be_called_with(function, 0):
        raise InvalidType("a lifespan takes no arguments")


def check_middleware(function: Any) -> None:
    """Refuses what could not be called around a run."""
    if not inspect.iscoroutinefunction(function) or not _can_be_called_with(function, 2):
        raise InvalidType("a middleware is an async def that takes a Job and a function to await")


def _can_be_called_with(function: Any, arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    return True


@dataclass(frozen=True)
class AppRuntime:
    """What all runs of an app's tasks share in a process."""

    middlewares: tuple[Middleware, ...] = ()
    constants: Mapping[Provider, Any] = field(default_factory=dict)  # what the lifespan has yielded


@asynccontextmanager
async def open_app_runtime(lifespan: Lifespan | None, middlewares: tuple[Middleware, ...]) -> AsyncIterator[AppRuntime]:
    """Runs the first half of the lifespan, and the second half at the end."""
    if lifespan is None:
        yield AppRuntime(middlewares)
        return
    generator = lifespan()
    state = await enter_generator(generator)
    try:
        yield AppRuntime(middlewares, {lifespan: state})
    finally:
        await close_dependencies([generator], None)
