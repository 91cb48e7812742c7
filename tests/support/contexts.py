"""Handlers in a context of their own, as lanes run them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from pychasqui._worker.job_context import await_rest_of_coroutine, take_first_step_in_new_context

T = TypeVar("T")


async def in_own_context(function: Callable[[T], Awaitable[Any]], argument: T) -> Any:
    try:
        steps = take_first_step_in_new_context(function, argument)
    except StopIteration as stop:
        return stop.value
    return await await_rest_of_coroutine(*steps)


class Suspension:
    """An awaitable that suspends once."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield
