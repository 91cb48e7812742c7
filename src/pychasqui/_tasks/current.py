"""current_job(): the job that runs here."""

from __future__ import annotations

from contextvars import ContextVar

from ..job import Job

running_job: ContextVar[Job] = ContextVar("chasqui_running_job")
is_in_plain_function: ContextVar[bool] = ContextVar("chasqui_is_in_plain_function", default=False)  # in tests alone


def current_job() -> Job:
    """Returns the Job that runs here, in a task, in what it calls and in its thread; raises LookupError elsewhere."""
    job = running_job.get(None)
    if job is None:
        raise LookupError("no job runs here: current_job() works inside a task that a worker runs")
    return job
