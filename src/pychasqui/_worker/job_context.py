"""Runs a coroutine in a context of its own, inside the task that awaits it.

A lane runs many jobs in one task, and a task has one context: a context variable that one handler sets would still be
set for the next job. A task for each job would isolate them too, at ten times the cost.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from types import CoroutineType
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class HandlerExit(BaseException):
    """A handler has raised GeneratorExit, and failed by it. A plain one closes the lane itself: its loop is gone."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Steps(NamedTuple):
    """A coroutine that has taken its first step and waits for something."""

    run: Callable[..., Any]  # in its context
    rest: Coroutine[Any, Any, Any]
    waits_for: Any


def first_step(function: Callable[[T], Awaitable[Any]], argument: T) -> Steps:
    """Call function(argument) in a new context and step into what it returns; StopIteration brings its result."""
    run = copy_context().run
    awaitable = run(function, argument)
    rest: Any = awaitable if type(awaitable) is CoroutineType else as_coroutine(awaitable)
    return Steps(run, rest, run(rest.send, None))


async def as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


@types.coroutine
def await_rest(
    run: Callable[..., Any], rest: Coroutine[Any, Any, Any], waits_for: Any, error: BaseException | None = None
) -> Generator[Any, Any, Any]:
    """Awaits the rest of a coroutine that has taken its first step; throws `error` into it first, if there is one."""
    is_closed = False
    try:
        while True:
            if error is not None:
                waits_for, error = run(rest.throw, error), None
            try:
                value = yield waits_for
            except GeneratorExit:
                is_closed = True
                run(rest.close)
                raise
            except BaseException as raised:  # noqa: BLE001  the handler sees all of it, the lane's cancellation too
                error = raised
            else:
                waits_for = run(rest.send, value)
    except StopIteration as stop:
        return stop.value
    except GeneratorExit as own:
        if is_closed:
            raise
        raise HandlerExit(own) from None
