"""Wraps the user's handler as the lanes call it: with a Delivery, of which the handler gets a Job of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .. import logs
from .._core.delivery import Delivery
from ..job import Job
from ..tracing import RunHandler, SpanOrigin, find_tracing
from .config import WorkerConfig
from .handlers import is_async_handler
from .job_reporter import JobReporter
from .job_stops import JobStops
from .plain_handler import (
    RunInThread,
    as_async_handler,
    wrap_to_leave_awaitables_to_loop,
    wrap_to_take_first_step,
)

T = TypeVar("T")


def wrap_handler(
    config: WorkerConfig, address: tuple[str, int | None] | None, reporter: JobReporter, stops: JobStops
) -> RunHandler | RunInThread:
    """Returns the handler with a trace around it and its job known to its logs, each only if it is wanted.

    Lanes are to await what it returns; if the handler is a plain function, ThreadLanes are to call it in a thread.
    """
    is_async = is_async_handler(config.handler)
    tracing = find_tracing(config.tracing)
    run_handler: RunHandler | RunInThread
    if tracing is not None:
        me = (config.group, config.consumer_id, config.max_attempts, stops.find_timeout_error)
        handler = config.handler if is_async else as_async_handler(config.handler)
        origin = SpanOrigin(config.queue_name, address, *me)
        run_traced = tracing.processing(origin, wrap_to_move_into_job(handler, reporter))
        run_handler = run_traced if is_async else wrap_to_take_first_step(run_traced)
    else:
        handler = config.handler if is_async else wrap_to_leave_awaitables_to_loop(config.handler)
        run_handler = wrap_to_move_into_job(handler, reporter)
    return logs.bind_job_to_context(config.queue_name, run_handler)


def wrap_to_move_into_job(handler: Callable[[Job], T], reporter: JobReporter) -> Callable[[Delivery], T]:
    """Returns the handler, called with a Job of its own for each delivery."""

    def run_with_job(delivery: Delivery) -> T:
        own_id, name, data = delivery.id, delivery.name, delivery.data
        delivery.data = None
        attempt, created_at_ms = delivery.attempt, delivery.created_at_ms
        return handler(
            Job(
                own_id,
                name,
                data,
                attempt,
                created_at_ms,
                reporter,
                own_id,
                name,
                delivery.extras,
                delivery.entry_id,
            )
        )

    return run_with_job
