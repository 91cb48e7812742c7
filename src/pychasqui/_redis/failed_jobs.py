"""Failed jobs as reschedule.lua and bury.lua take them: each with the events that are written with its move."""

from __future__ import annotations

from .._core.outcome import CANCELLED, EXPIRED, Buried, Rescheduled
from .._wire.event import (
    Event,
    encode_events_for_scripts,
    make_cancelled_event,
    make_dead_event,
    make_expired_event,
    make_failed_run_events,
    make_retry_event,
)


def make_reschedule_arguments(job: Rescheduled, *, with_events: bool) -> tuple[bytes | str | int, ...]:
    """Returns a job as reschedule.lua takes it."""
    events: tuple[str | int, ...] = ()
    if with_events:
        own = (job.job_id, job.job_name)
        events = encode_events_for_scripts(
            *make_failed_run_events(*own, job.run, job.at_ms),
            make_retry_event(*own, job.run.attempt + 1, job.delay_ms, job.at_ms),
        )
    head = (job.entry_id, job.delivery, job.delay_ms, job.member, job.job_id, int(job.may_be_unique))
    return (*head, len(events), *events)


def make_bury_arguments(job: Buried, *, with_events: bool) -> tuple[bytes | str | int, ...]:
    """Returns a job as bury.lua takes it."""
    events = encode_events_for_scripts(*_make_events_of_buried(job)) if with_events else ()
    unique_id = job.job_id if job.may_be_unique and job.job_id is not None else ""
    return (job.entry_id, job.delivery, unique_id, len(job.letter), len(events), *job.letter, *events)


def _make_events_of_buried(job: Buried) -> list[Event]:
    if job.job_id is None:
        return [make_dead_event("", "", job.runs, job.reason, None, job.at_ms)]
    own = (job.job_id, job.job_name)
    if job.reason == CANCELLED:
        return [make_cancelled_event(*own, job.runs, job.run, job.at_ms)]
    dead = make_dead_event(*own, job.runs, job.reason, job.run, job.at_ms)
    if job.reason == EXPIRED:
        return [make_expired_event(*own, job.runs, job.at_ms), dead]
    return [dead] if job.run is None else [*make_failed_run_events(*own, job.run, job.at_ms), dead]
