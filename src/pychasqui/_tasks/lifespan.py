"""The lifespan of an app and what surrounds each run: made once, when workers start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ..job import Job
from .injection import Provider, close_dependencies

Call = Callable[[], Awaitable[Any]]
Middleware = Callable[[Job, Call], Awaitable[Any]]
Lifespan = Callable[[], AsyncIterator[Any]]


@dataclass(frozen=True)
class RunSurroundings:
    """What every task of a process has around it."""

    middlewares: tuple[Middleware, ...] = ()
    constants: Mapping[Provider, Any] = field(default_factory=dict)  # what the lifespan has yielded


@asynccontextmanager
async def run_lifespan(
    lifespan: Lifespan | None, middlewares: tuple[Middleware, ...]
) -> AsyncIterator[RunSurroundings]:
    """Runs the first half of the lifespan, and the second half at the end."""
    if lifespan is None:
        yield RunSurroundings(middlewares)
        return
    generator = lifespan()
    state = await anext(generator)
    try:
        yield RunSurroundings(middlewares, {lifespan: state})
    finally:
        await close_dependencies([generator], None)
