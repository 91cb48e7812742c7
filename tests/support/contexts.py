"""Handlers in a context of their own, as lanes run them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextvars import copy_context
from typing import Any, TypeVar

from pychasqui._worker.job_context import as_coroutine, await_rest_of_coroutine

T = TypeVar("T")


async def in_own_context(function: Callable[[T], Awaitable[Any]], argument: T) -> Any:
    try:
        run = copy_context().run
        rest = as_coroutine(run(function, argument))
        waits_for = run(rest.send, None)
    except StopIteration as stop:
        return stop.value
    return await await_rest_of_coroutine(run, rest, waits_for)


class Suspension:
    """An awaitable that suspends once."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield
