"""Wraps a handler that is a plain function: it runs in a thread. What it returns to be awaited is left to the loop."""

from __future__ import annotations

import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import AsyncGeneratorType, GeneratorType
from typing import Any, NamedTuple

from .._core.delivery import Delivery
from ..job import Job
from ..tracing import RunHandler
from .job_context import as_coroutine

RunInThread = Callable[[Delivery], Any]  # returns what the handler has returned, or LeftToLoop


class LeftToLoop(NamedTuple):
    """The part of a run that a thread leaves to the event loop."""

    rest: Coroutine[Any, Any, Any]
    waits_for: Any  # None: for nothing, as in asyncio.sleep(0)


def wrap_to_leave_awaitables_to_loop(function: Callable[[Job], Any]) -> Callable[[Job], Any]:
    """The returned function raises what a coroutine would raise for a handler that raises StopIteration."""

    def run(job: Job) -> Any:
        try:
            result = function(job)
        except StopIteration as stop:
            raise RuntimeError("the handler raised StopIteration") from stop
        if result is None:
            return None
        if _is_awaitable(result):  # a lambda around an async function
            return LeftToLoop(as_coroutine(result), None)
        if type(result) in (GeneratorType, AsyncGeneratorType):
            raise TypeError("the handler returned a generator, whose body has not run")
        return result

    return run


def as_async_handler(function: Callable[[Job], Any]) -> Callable[[Job], Awaitable[Any]]:
    """Makes a coroutine function of a plain one, for a wrapper that awaits it. Its first step runs the function."""
    run_function = wrap_to_leave_awaitables_to_loop(function)

    async def run(job: Job) -> Any:
        result = run_function(job)
        if type(result) is LeftToLoop:
            await _suspend_to_move_to_loop()
            return await result.rest
        return result

    return run


def wrap_to_take_first_step(run_handler: RunHandler) -> RunInThread:
    """The returned function runs the first step of a coroutine, and leaves the rest to the event loop."""

    def run(job: Delivery) -> Any:
        awaitable = run_handler(job)
        coroutine: Any = awaitable if inspect.iscoroutine(awaitable) else as_coroutine(awaitable)
        try:
            return LeftToLoop(coroutine, coroutine.send(None))
        except StopIteration as stop:
            return stop.value

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
