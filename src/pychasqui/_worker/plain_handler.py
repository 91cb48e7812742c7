"""Makes a coroutine function of a handler that is a plain function: it runs in a thread, to its end in one step."""

from __future__ import annotations

import inspect
import types
from collections.abc import Awaitable, Callable, Generator
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from ..job import Job


def as_async_handler(function: Callable[[Job], Any]) -> Callable[[Job], Awaitable[Any]]:
    """The coroutine suspends only if the function returns an awaitable: its rest is then for the event loop."""

    async def run(job: Job) -> Any:
        try:
            result = function(job)
        except StopIteration as stop:  # a coroutine cannot raise it either, and converts it in the same way
            raise RuntimeError("the handler raised StopIteration") from stop
        if result is None:
            return None
        if _is_awaitable(result):  # a lambda around an async function
            await _suspend_to_move_to_loop()
            return await result
        if type(result) in (GeneratorType, AsyncGeneratorType):
            raise TypeError("the handler returned a generator, whose body has not run")
        return result

    return run


@types.coroutine
def _suspend_to_move_to_loop() -> Generator[None, None, None]:
    """Suspends. The thread leaves the coroutine to a task of the event loop, for which this is asyncio.sleep(0)."""
    yield


def _is_awaitable(result: object) -> bool:
    """Does what inspect.isawaitable() does, which asks the object for its class."""
    try:
        return inspect.isawaitable(result)
    except BaseException:  # noqa: BLE001  the object is the user's, and may raise anything
        return False
