"""PrometheusSink: counts what workers and queues do, and renders the counts for a scrape.

It has the official metric names, so that their dashboards work, and some more. The state of a queue comes from a
QueueExporter instead: if each worker exported it, every sum() over workers would multiply it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from time import monotonic

from .._core.delivery import Delivery
from ..metrics import (
    DlqRouted,
    JobOutcome,
    JobsAdded,
    JobsCancelled,
    LockOutcome,
    MetricsSink,
    PromoterTick,
    ReaderBatch,
    RedisAnswered,
    RetryScheduled,
)
from .text_format import CONTENT_TYPE, Histogram, JobNameLabels, Metric, render

__all__ = ["CONTENT_TYPE", "PrometheusSink"]

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
SHORT_SECONDS = (0.0001, 0.00025, 0.0005, *SECONDS[:12])
LONG_SECONDS = (*SECONDS, 1800.0, 7200.0, 86400.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)
JOBS_PER_SAMPLE = 256  # the wait of one in this many jobs of a batch is recorded


class PrometheusSink(MetricsSink):
    """The metrics sink of a Worker, of a Queue, or of both in one process. render() returns the text for a scrape."""

    def __init__(self, queue_name: str) -> None:
        self._common = {"queue": queue_name}
        self._to_name_label = JobNameLabels()
        self._leads: set[str] = set()
        self._completed = Metric("chasquimq_jobs_completed_total", "counter", "Runs whose handler returned.", "name")
        self._failed = Metric("chasquimq_jobs_failed_total", "counter", "Runs whose handler raised.", "name", "kind")
        self._durations = Histogram("chasquimq_handler_duration_seconds", "How long handlers ran.", SECONDS, "name")
        self._waits = Histogram(
            "chasquimq_job_wait_seconds",
            f"From when a job was ready to run until it was started; of jobs acked together, one in {JOBS_PER_SAMPLE}.",
            LONG_SECONDS,
            "name",
        )
        self._retries = Metric("chasquimq_retries_scheduled_total", "counter", "Failed jobs that run again.", "name")
        self._backoffs = Histogram("chasquimq_retry_backoff_seconds", "Delays before retries.", LONG_SECONDS, "name")
        self._dead = Metric("chasquimq_dlq_routed_total", "counter", "Jobs sent to the dead letters.", "name", "reason")
        self._cancelled = Metric("chasquimq_jobs_cancelled_total", "counter", "Cancelled jobs.", "name", "mode")
        self._reads = Histogram("chasquimq_consumer_batch_size", "Entries that were read together.", SIZES)
        self._acks = Histogram("chasquimq_ack_flush_size", "Jobs that were acked together.", SIZES)
        self._added = Metric("chasquimq_jobs_enqueued_total", "counter", "Jobs that were added.", "name", "mode")
        self._answers = Histogram(
            "chasquimq_redis_command_seconds", "How long Redis took for a batch.", SHORT_SECONDS, "command"
        )
        self._reclaimed = Metric(
            "chasquimq_consumer_reclaimed_total", "counter", "Entries taken over from workers that had begun with them."
        )
        self._promoted = Metric("chasquimq_promoter_promoted_total", "counter", "Delayed jobs moved to the stream.")
        self._acquired = Metric("chasquimq_promoter_lock_acquired_total", "counter", "Leases acquired.", "role")
        self._lost = Metric("chasquimq_promoter_lock_lost_total", "counter", "Leases lost.", "role")
        self._depth = Metric("chasquimq_delayed_zset_depth", "gauge", "Delayed jobs, as the leading promoter saw them.")
        self._lag = Metric(
            "chasquimq_promoter_oldest_pending_lag_seconds", "gauge", "How long the first delayed job has been due."
        )
        self._lag_ms = Metric("chasquimq_promoter_oldest_pending_lag_ms", "gauge", "The same under its official name.")
        self._clear_delayed_gauges()

    def render(self, more: Iterable[Metric | Histogram] = ()) -> str:
        """Returns all metrics in the text format of Prometheus."""
        own = [metric for metric in vars(self).values() if isinstance(metric, (Metric, Histogram))]
        return render([*own, *more], self._common)

    def jobs_done(self, jobs: list[Delivery]) -> None:
        """Records a batch of jobs that are done and acked; called instead of job_outcome() for each."""
        self._acks.get_or_make_buckets().observe(len(jobs))
        name = jobs[0].name
        same = [job.ended_at - job.started_at for job in jobs if job.name == name]  # hot: 0.04 us a job in all
        if len(same) == len(jobs):
            self._record_done_jobs(name, same)
        else:
            durations = defaultdict(list)
            for job in jobs:
                durations[job.name].append(job.ended_at - job.started_at)
            for each, own in durations.items():
                self._record_done_jobs(each, own)
        epoch_s = time.time() - monotonic()  # each time: the clock may be set, and the machine may sleep
        for job in jobs[::JOBS_PER_SAMPLE]:
            self._waits.get_or_make_buckets(self._to_name_label(job.name)).observe(
                _compute_wait_in_queue_s(job, epoch_s)
            )

    def _record_done_jobs(self, name: str, durations: list[float]) -> None:
        name = self._to_name_label(name)
        self._completed.increase(name, by=len(durations))
        self._durations.get_or_make_buckets(name).observe_all(durations)

    def job_outcome(self, outcome: JobOutcome) -> None:
        name = self._to_name_label(outcome.name)
        if outcome.kind == "ok":
            self._completed.increase(name)
        elif outcome.kind != "cancelled":
            self._failed.increase(name, "error" if outcome.kind == "err" else outcome.kind)
        self._durations.get_or_make_buckets(name).observe(outcome.handler_duration_us / 1_000_000)

    def retry_scheduled(self, retry: RetryScheduled) -> None:
        name = self._to_name_label(retry.name)
        self._retries.increase(name)
        self._backoffs.get_or_make_buckets(name).observe(retry.backoff_ms / 1000)

    def dlq_routed(self, dlq: DlqRouted) -> None:
        self._dead.increase(self._to_name_label(dlq.name), dlq.reason)

    def jobs_cancelled(self, cancelled: JobsCancelled) -> None:
        self._cancelled.increase(self._to_name_label(cancelled.name), cancelled.mode, by=cancelled.count)

    def jobs_added(self, added: JobsAdded) -> None:
        self._added.increase(self._to_name_label(added.name), added.mode, by=added.count)

    def redis_answered(self, answered: RedisAnswered) -> None:
        self._answers.get_or_make_buckets(answered.command).observe(answered.seconds)

    def reader_batch(self, batch: ReaderBatch) -> None:
        self._reads.get_or_make_buckets().observe(batch.size)
        self._reclaimed.increase(by=batch.reclaimed)

    def promoter_tick(self, tick: PromoterTick) -> None:
        self._promoted.increase(by=tick.promoted)
        if "promoter" in self._leads:
            self._depth.set(tick.depth)
            self._lag.set(tick.oldest_pending_lag_ms / 1000)
            self._lag_ms.set(tick.oldest_pending_lag_ms)

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None:
        if outcome.outcome == "acquired":
            self._leads.add(outcome.role)
            self._acquired.increase(outcome.role)
        elif outcome.role in self._leads:  # a process that never led has lost nothing
            self._leads.remove(outcome.role)
            self._lost.increase(outcome.role)
            if outcome.role == "promoter":
                self._clear_delayed_gauges()

    def _clear_delayed_gauges(self) -> None:
        """Clears the gauges that the leading promoter sets: a former leader would show its last values for ever."""
        for metric in (self._depth, self._lag, self._lag_ms):
            metric.clear()


def _compute_wait_in_queue_s(job: Delivery, epoch_s: float) -> float:
    """Returns how long the job has waited. The entry's id has the server's time, and our clock may be behind it."""
    ready_ms = int(job.entry_id.partition(b"-")[0] or 0)
    return max(0.0, job.started_at + epoch_s - ready_ms / 1000)
