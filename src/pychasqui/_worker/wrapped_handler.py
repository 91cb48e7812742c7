"""Wraps the user's handler as the lanes call it: with a Delivery, of which the handler gets a Job of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .. import logs
from .._core.delivery import Delivery
from ..job import Job
from ..tracing import RunHandler, SpanOrigin, find_tracing
from .config import WorkerConfig
from .handlers import is_async_handler
from .job_reporter import JobReporter
from .job_stops import JobStops
from .plain_handler import as_async_handler


def wrap_handler(
    config: WorkerConfig, address: tuple[str, int | None] | None, reporter: JobReporter, stops: JobStops
) -> RunHandler:
    """Returns the handler with a trace around it and its job known to its logs, each only if it is wanted."""
    handler = config.handler if is_async_handler(config.handler) else as_async_handler(config.handler)
    run_handler = wrap_to_move_into_job(handler, reporter)
    tracing = find_tracing(config.tracing)
    if tracing is not None:
        me = (config.group, config.consumer_id, config.max_attempts, stops.find_timeout_error)
        run_handler = tracing.processing(SpanOrigin(config.queue_name, address, *me), run_handler)
    return logs.bind_job_to_context(config.queue_name, run_handler)


def wrap_to_move_into_job(handler: Callable[[Job], Awaitable[Any]], reporter: JobReporter) -> RunHandler:
    """Returns the handler, called with a Job of its own for each delivery."""

    def run_with_job(delivery: Delivery) -> Awaitable[Any]:
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
