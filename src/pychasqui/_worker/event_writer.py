"""Writes the worker's events to the event stream, in batches. Drops events rather than delay jobs.

The event active is written a moment after the job has started. The event completed goes out in the same write as the
job's ack, behind it. If the server is slow to take events or refuses them, they are dropped and counted. The events of
a failed job are written by the script that moves the job.
"""

from __future__ import annotations

import asyncio
import time
from time import monotonic

from .._core.delivery import Delivery
from .._core.guarded_log import GuardedLogger
from .._redis.broker import Broker
from .._redis.event_batch import EventBatch, OnWritten
from .._wire.event import (
    CompletedEvent,
    Event,
    make_active_event,
    make_completed_without_result_event,
    make_drained_event,
)
from ..errors import RedisTrouble
from .service import Service
from .shared import Shared

log = GuardedLogger("chasqui.worker")

GATHER_S = 0.01  # started jobs are gathered for this long
SETTLED_IN_S = 1.0  # a job that has ended may wait this long for its ack, and for the events that go with it


class EventWriter(Service):
    """start() -> writes active events by itself, and the events that other parts pass to it -> end()."""

    title = "event writer"

    def __init__(self, broker: Broker, shared: Shared, *, max_len: int, stores_results: bool) -> None:
        super().__init__(shared.on_death)
        self.dropped = 0
        self._broker = broker
        self._max_len = max_len
        self._stores_results = stores_results
        self._started: list[Delivery] = []
        self._is_dropping = False
        shared.drained.add_listener(self._write_or_drop_drained_event)

    def queue_active_event(self, job: Delivery) -> None:
        """Notes a job whose handler is about to be called; its event active follows."""
        self._started.append(job)  # hot: everything else is done once per batch
        if self._sleeper is not None:
            self.wake_if_asleep()

    def make_completed_and_missing_active_events(
        self, jobs: list[Delivery], on_written: OnWritten | None = None
    ) -> EventBatch:
        """Returns the events of jobs that are done. The broker asks for them as it sends the ack, and writes them then.

        `on_written` is called in place of note_written_or_count_dropped().
        """
        others: list[Event] = []
        if self._stores_results and any(job.result is None for job in jobs):
            others = self._make_events_of_jobs_without_result([job for job in jobs if job.result is None])
            jobs = [job for job in jobs if job.result is not None]
        completed: list[CompletedEvent] = []
        epoch_s = _measure_epoch_offset_s()
        for job in jobs:
            started_at, ended_at = job.started_at, job.ended_at
            started = "" if job.has_active_event else int((started_at + epoch_s) * 1000)
            job.has_active_event = True
            duration_us = int((ended_at - started_at) * 1_000_000)
            ended = int((ended_at + epoch_s) * 1000)
            completed.append((job.id, job.name, job.attempt + 1, started, ended, duration_us))
        return EventBatch(
            self._max_len, on_written or self.note_written_or_count_dropped, others, completed, self._stores_results
        )

    def _make_events_of_jobs_without_result(self, jobs: list[Delivery]) -> list[Event]:
        """Returns the events of jobs whose result cannot be stored; they carry the reason, for callers that wait."""
        events: list[Event] = []
        epoch_s = _measure_epoch_offset_s()
        for job in jobs:
            if not job.has_active_event:
                events.append(_make_active_event(job, epoch_s))
            job.has_active_event = True
            duration_us = int((job.ended_at - job.started_at) * 1_000_000)
            at_ms, why = int((job.ended_at + epoch_s) * 1000), job.why_not_stored
            events.append(
                make_completed_without_result_event(job.id, job.name, job.attempt + 1, duration_us, why, at_ms)
            )
        return events

    def write_or_drop_events_behind_active(self, events: list[Event]) -> None:
        """Writes these events, behind the active events that are not written yet."""
        self.write_or_drop_active_events()
        self._write_or_drop(events)

    def _write_or_drop(self, events: list[Event]) -> None:
        self._broker.write_or_drop_events(EventBatch(self._max_len, self.note_written_or_count_dropped, events))

    def _write_or_drop_drained_event(self) -> None:
        self.write_or_drop_events_behind_active([make_drained_event()])

    async def _run_until_stopped(self) -> None:
        while True:
            while not self._started:
                if self._is_stopping:
                    return
                await self._sleep_until_woken()
            await asyncio.sleep(GATHER_S)  # not _sleep_until_woken(): jobs that start meanwhile must not end it
            if self._is_stopping:
                self.write_or_drop_active_events()
            else:
                self._write_or_drop_active_except_just_ended()

    def _write_or_drop_active_except_just_ended(self) -> None:
        """Writes those of jobs that run, or have ended a while ago: one that has just ended gets both with its ack."""
        # hot: short jobs have nearly all ended by now, and writing both events at once costs half
        lately = max(0.0, monotonic() - SETTLED_IN_S)
        unwritten = [job for job in self._started if not job.has_active_event]
        self._started = [job for job in unwritten if job.ended_at > lately]
        self._write_or_drop_active_events_of([job for job in unwritten if job.ended_at <= lately])

    def write_or_drop_active_events(self) -> None:
        """Writes all active events that are not written yet."""
        jobs, self._started = self._started, []
        self._write_or_drop_active_events_of([job for job in jobs if not job.has_active_event])

    def _write_or_drop_active_events_of(self, jobs: list[Delivery]) -> None:
        for job in jobs:
            job.has_active_event = True
        if jobs:
            epoch_s = _measure_epoch_offset_s()
            self._write_or_drop([_make_active_event(job, epoch_s) for job in jobs])

    def note_written_or_count_dropped(self, count: int, trouble: RedisTrouble | None) -> None:
        """Counts events that are lost, for this reason; with None Redis has taken them."""
        if trouble is not None:
            self.count_dropped_and_log_first(count, str(trouble))
        else:
            self._is_dropping = False

    def count_dropped_and_log_first(self, count: int, why: str) -> None:
        """Counts events that are lost, and logs the first loss of a series."""
        self.dropped += count
        if not self._is_dropping:
            self._is_dropping = True
            log.warning("events are dropped; jobs go on: %s", why)


def _measure_epoch_offset_s() -> float:
    """Returns what makes a time of monotonic() one of the clock: a sleep of the machine changes it."""
    return time.time() - monotonic()


def _make_active_event(job: Delivery, epoch_s: float) -> Event:
    return make_active_event(job.id, job.name, job.attempt + 1, int((job.started_at + epoch_s) * 1000))
