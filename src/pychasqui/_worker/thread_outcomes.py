"""What a thread has come to with a job: a result, an error, steps that are left for the event loop, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .._core.delivery import Delivery
from .job_context import SteppedCoroutine
from .plain_handler import LeftToLoop, RunInThread

DROPPED = object()  # the outcome of a job that does not run: it is settled already, or waits again


class Raised(NamedTuple):
    """The outcome of a run that has failed."""

    error: BaseException


def run_handler_and_catch_errors(run_in_context: Callable[..., Any], handler: RunInThread, job: Delivery) -> Any:
    """Calls the handler: returns its result, what it raised, or the steps that are left for the event loop."""
    try:
        result = run_in_context(handler, job)
    except BaseException as error:  # noqa: BLE001  a handler may raise anything
        return Raised(error)
    return SteppedCoroutine(run_in_context, *result) if type(result) is LeftToLoop else result
