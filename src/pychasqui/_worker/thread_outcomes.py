"""What a thread has come to with a job: a result, an error, steps that are left for the event loop, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType
from typing import Any, NamedTuple

from .._core.delivery import Delivery
from .first_step import RunHandler
from .job_context import SteppedCoroutine, as_coroutine

DROPPED = object()  # the outcome of a job that does not run: it is settled already, or waits again


class Raised(NamedTuple):
    """The outcome of a run that has failed."""

    error: BaseException


def start_handler_and_catch_errors(run_in_context: Callable[..., Any], handler: RunHandler, job: Delivery) -> Any:
    """Calls the handler: returns its result, what it raised, or the steps that are left for the event loop."""
    try:
        awaitable = run_in_context(handler, job)
        rest: Any = awaitable if type(awaitable) is CoroutineType else as_coroutine(awaitable)
        return SteppedCoroutine(run_in_context, rest, run_in_context(rest.send, None))
    except StopIteration as stop:
        return stop.value
    except BaseException as error:  # noqa: BLE001  a handler may raise anything
        return Raised(error)
