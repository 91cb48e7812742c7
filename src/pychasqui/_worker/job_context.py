"""Runs a coroutine in a context of its own, inside the task that awaits it.

A lane runs many jobs in one task, and a task has one context: a context variable that one handler sets would still be
set for the next job. A task for each job would isolate them too, at ten times the cost.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import FrameType
from typing import Any, NamedTuple

from .task_ends import uncancel_current_task

MAX_FRAMES = 50
_FRAMES = ("cr_frame", "gi_frame", "ag_frame")
_AWAITS = ("cr_await", "gi_yieldfrom", "ag_await")


class HandlerExit(BaseException):
    """A handler has raised GeneratorExit, and failed by it. A plain one closes the lane itself: its loop is gone."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class SteppedCoroutine(NamedTuple):
    """A coroutine that has taken its first step and waits for something."""

    run: Callable[..., Any]  # in its context
    rest: Coroutine[Any, Any, Any]
    waits_for: Any


async def as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


@types.coroutine
def await_rest_of_coroutine(
    run_in_context: Callable[..., Any],
    rest: Coroutine[Any, Any, Any],
    waits_for: Any,
    error: BaseException | None = None,
) -> Generator[Any, Any, Any]:
    """Awaits the rest of a coroutine that has taken its first step; throws `error` into it first, if there is one."""
    is_closed = False
    try:
        while error is None:
            try:
                value = yield waits_for
            except GeneratorExit:
                is_closed = True
                run_in_context(rest.close)
                raise
            except BaseException as raised:  # noqa: BLE001  the handler sees all of it, the lane's cancellation too
                error = raised
            else:
                waits_for = run_in_context(rest.send, value)
    except StopIteration as stop:
        return stop.value
    except GeneratorExit as own:
        if is_closed:
            raise
        raise HandlerExit(own) from None
    return (yield from _await_rest_after_error_and_uncancel(run_in_context, rest, error))


def _await_rest_after_error_and_uncancel(
    run_in_context: Callable[..., Any], rest: Coroutine[Any, Any, Any], error: BaseException | None
) -> Generator[Any, Any, Any]:
    """Awaits the rest of a coroutine into which an error is thrown: nearly always the cancellation of its task.

    When the coroutine has ended, its task takes back all cancellations: they were meant for this job.
    """
    is_closed, waits_for = False, None
    try:
        while True:
            if error is not None:
                waits_for, error = run_in_context(rest.throw, error), None
            try:
                value = yield waits_for
            except GeneratorExit:
                is_closed = True
                run_in_context(rest.close)
                raise
            except BaseException as raised:  # noqa: BLE001
                error = raised
            else:
                waits_for = run_in_context(rest.send, value)
    except StopIteration as stop:
        return stop.value
    except GeneratorExit as own:
        if is_closed:
            raise
        raise HandlerExit(own) from None
    finally:
        if not is_closed:
            uncancel_current_task()


def find_await_stack(task: asyncio.Task[Any]) -> list[FrameType]:
    """Returns the frames of a suspended task, from the outermost to the one that waits.

    Those below await_rest_of_coroutine() are among them.
    """
    frames: list[FrameType] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(frames) < MAX_FRAMES:
        frame = next((found for name in _FRAMES if (found := getattr(awaited, name, None)) is not None), None)
        if frame is None:
            break
        is_ours = frame.f_code.co_filename == __file__
        if not is_ours:
            frames.append(frame)
        own = next((found for name in _AWAITS if (found := getattr(awaited, name, None)) is not None), None)
        awaited = frame.f_locals.get("rest") if is_ours and getattr(own, "gi_frame", None) is None else own
    return frames
