"""The lifespan of an app, and its middlewares: made once, when workers start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ..job import Job
from .injection import Provider, close_dependencies, enter_generator

Call = Callable[[], Awaitable[Any]]
Middleware = Callable[[Job, Call], Awaitable[Any]]
Lifespan = Callable[[], AsyncIterator[Any]]


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
