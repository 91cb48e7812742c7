"""Takes the first step of a job outside of its lane, in the lane's name.

A job that comes alone does not wait for its lane to wake up: its first step is taken where it arrives, and the lane
goes on from there. This uses what CPython documents for code that runs steps of tasks; `make pythons` runs the tests
of it on each version from 3.11 to 3.14.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task  # documented in Extending asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from types import CoroutineType
from typing import Any, NamedTuple

from .._core.delivery import Delivery
from .job_context import HandlerExit, SteppedCoroutine, as_coroutine, await_rest_of_coroutine

RunHandler = Callable[[Delivery], Awaitable[Any]]


class StartedJob(NamedTuple):
    """A job that has taken its first step outside of its lane."""

    job: Delivery
    steps: SteppedCoroutine | None  # None: it has ended by the error
    error: BaseException | None = None  # what its lane is to throw into it first

    async def await_rest_or_raise_error(self) -> Any:
        if self.steps is not None:
            return await await_rest_of_coroutine(*self.steps, self.error)
        assert self.error is not None
        raise HandlerExit(self.error) if issubclass(type(self.error), GeneratorExit) else self.error


def run_first_step_and_keep_error(
    loop: asyncio.AbstractEventLoop, lane: asyncio.Task[None], handler: RunHandler, job: Delivery
) -> tuple[Any, StartedJob | None]:
    """Returns the handler's result if it needed no second step; else the job as it was started, for its lane."""
    _enter_task(loop, lane)
    try:
        run = copy_context().run
        awaitable = run(handler, job)
        rest: Any = awaitable if type(awaitable) is CoroutineType else as_coroutine(awaitable)
        return None, StartedJob(job, SteppedCoroutine(run, rest, run(rest.send, None)))
    except StopIteration as stop:
        return stop.value, None
    except BaseException as error:  # noqa: BLE001  whatever it is, its lane sees it
        return None, StartedJob(job, None, error)
    finally:
        _leave_task(loop, lane)
