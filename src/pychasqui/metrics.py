"""Metrics: the records that workers and queues make, the MetricsSink that receives them, and one that keeps them.

A record is made once Redis has answered, so what is counted has happened. A sink is the user's object. It is called in
the event loop of the worker or queue and must not block. If it raises, the error is logged and jobs go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from ._core.delivery import Delivery

log = logging.getLogger("chasqui.worker")


# panic: the handler raised a BaseException that is not an Exception; timeout: it was stopped because it took too long
OutcomeKind = Literal["ok", "err", "panic", "timeout", "cancelled"]


class PromoterTick(msgspec.Struct, frozen=True):
    """The promoter has looked for due jobs once."""

    promoted: int
    depth: int  # jobs that are still delayed
    oldest_pending_lag_ms: int  # for how long the first of them has been due; 0 if it is not due yet


class LockOutcome(msgspec.Struct, frozen=True):
    """The leader has changed, as this process sees it: this process leads now (acquired), or another one (held)."""

    outcome: Literal["acquired", "held"]
    role: Literal["promoter", "scheduler"] = "promoter"


class ReaderBatch(msgspec.Struct, frozen=True):
    """A worker has received a batch of entries, including entries that it cannot run."""

    size: int
    reclaimed: int  # entries among them that were delivered before


class JobOutcome(msgspec.Struct, frozen=True):
    """A handler has run."""

    kind: OutcomeKind
    attempt: int  # 1 for the first run
    handler_duration_us: int
    name: str = ""


class RetryScheduled(msgspec.Struct, frozen=True):
    """A failed job waits for its next run."""

    attempt: int  # the number of that run
    backoff_ms: int
    name: str = ""


class DlqRouted(msgspec.Struct, frozen=True):
    """A job is in the dead letters."""

    reason: str
    attempt: int  # how many runs it had; 0 if it could not be run at all
    name: str = ""


class JobsCancelled(msgspec.Struct, frozen=True):
    """Redis has removed jobs of one name that were cancelled."""

    count: int
    mode: Literal["removed", "stopped"]  # removed: they had not reached a worker
    name: str = ""


class JobsAdded(msgspec.Struct, frozen=True):
    """Redis has added jobs of one name."""

    count: int
    mode: Literal["now", "delayed", "repeat"]  # repeat: a repeatable has fired
    name: str = ""


class RedisAnswered(msgspec.Struct, frozen=True):
    """A call of a worker to Redis has ended, in success or failure. Made only for sinks that have `redis_answered`."""

    command: str  # ack, finish, store, reschedule, bury or promote; one call settles a whole batch
    seconds: float


Record = (
    PromoterTick
    | LockOutcome
    | ReaderBatch
    | JobOutcome
    | RetryScheduled
    | DlqRouted
    | JobsCancelled
    | JobsAdded
    | RedisAnswered
)


class MetricsSink(Protocol):
    """Receives the records. Every method is optional."""

    def promoter_tick(self, tick: PromoterTick) -> None:
        """Called in the process that leads, and in another one only if it has promoted jobs."""

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None: ...
    def reader_batch(self, batch: ReaderBatch) -> None: ...
    def job_outcome(self, outcome: JobOutcome) -> None: ...
    def retry_scheduled(self, retry: RetryScheduled) -> None: ...
    def dlq_routed(self, dlq: DlqRouted) -> None: ...
    def jobs_cancelled(self, cancelled: JobsCancelled) -> None: ...
    def jobs_added(self, added: JobsAdded) -> None: ...
    def redis_answered(self, answered: RedisAnswered) -> None: ...


METHODS = {
    PromoterTick: "promoter_tick",
    LockOutcome: "promoter_lock_outcome",
    ReaderBatch: "reader_batch",
    JobOutcome: "job_outcome",
    RetryScheduled: "retry_scheduled",
    DlqRouted: "dlq_routed",
    JobsCancelled: "jobs_cancelled",
    JobsAdded: "jobs_added",
    RedisAnswered: "redis_answered",
}


class InMemorySink(MetricsSink):
    """Keeps every record, for tests."""

    def __init__(self) -> None:
        self.promoter_ticks: list[PromoterTick] = []
        self.lock_outcomes: list[LockOutcome] = []
        self.reader_batches: list[ReaderBatch] = []
        self.job_outcomes: list[JobOutcome] = []
        self.retries_scheduled: list[RetryScheduled] = []
        self.dlq_routes: list[DlqRouted] = []
        self.cancellations: list[JobsCancelled] = []
        self.additions: list[JobsAdded] = []
        self.redis_answers: list[RedisAnswered] = []

    def promoter_tick(self, tick: PromoterTick) -> None:
        self.promoter_ticks.append(tick)

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None:
        self.lock_outcomes.append(outcome)

    def reader_batch(self, batch: ReaderBatch) -> None:
        self.reader_batches.append(batch)

    def job_outcome(self, outcome: JobOutcome) -> None:
        self.job_outcomes.append(outcome)

    def retry_scheduled(self, retry: RetryScheduled) -> None:
        self.retries_scheduled.append(retry)

    def dlq_routed(self, dlq: DlqRouted) -> None:
        self.dlq_routes.append(dlq)

    def jobs_cancelled(self, cancelled: JobsCancelled) -> None:
        self.cancellations.append(cancelled)

    def jobs_added(self, added: JobsAdded) -> None:
        self.additions.append(added)

    def redis_answered(self, answered: RedisAnswered) -> None:
        self.redis_answers.append(answered)


class GuardedSinks:
    """Passes records on to the sinks of a worker or queue. Logs the first error of a sink, and counts the others."""

    def __init__(self, sinks: Sequence[object]) -> None:
        self.refused = 0  # calls in which a sink has raised
        self._methods = {kind: _find_sink_methods(sinks, method) for kind, method in METHODS.items()}
        # hot: a sink with jobs_done takes the batch as it is, which saves a record for each job
        whole = [sink for sink in sinks if hasattr(sink, "jobs_done")]
        self._for_batches = _find_sink_methods(whole, "jobs_done")
        self._for_each_job = _find_sink_methods(
            [sink for sink in sinks if not any(sink is other for other in whole)], "job_outcome"
        )

    def has_sink_for(self, kind: type[Record]) -> bool:
        """Whether any sink has a method for this kind of record."""
        return bool(self._methods[kind])

    def record(self, record: Record) -> None:
        """Passes one record to each sink that has a method for it."""
        for method in self._methods[type(record)]:
            self._call_sink_and_count_error(method, record)

    def record_all(self, records: Sequence[Record]) -> None:
        for record in records:
            self.record(record)

    def jobs_done(self, jobs: list[Delivery]) -> None:
        """Records a batch of jobs that are done and acked."""
        for method in self._for_batches:
            self._call_sink_and_count_error(method, jobs)
        if self._for_each_job:
            for job in jobs:
                outcome = make_job_outcome(job, "ok")
                for method in self._for_each_job:
                    self._call_sink_and_count_error(method, outcome)

    def _call_sink_and_count_error(self, method: Callable[[Any], object], record: object) -> None:
        try:
            method(record)
        except KeyboardInterrupt:  # Ctrl-C has come meanwhile
            raise
        except BaseException as error:  # noqa: BLE001  a sink is the user's, and may raise anything
            self._count_error_and_log_some(error)

    def _count_error_and_log_some(self, error: BaseException) -> None:
        self.refused += 1
        if self.refused == 1:
            log.error("a metrics sink has raised; jobs go on, and further errors are only counted", exc_info=error)
        elif self.refused in (10, 1000, 100_000):
            log.warning("a metrics sink has raised %d times", self.refused)


def make_job_outcome(job: Delivery, kind: OutcomeKind) -> JobOutcome:
    return JobOutcome(kind, job.attempt + 1, int((job.ended_at - job.started_at) * 1_000_000), job.name)


def _find_sink_methods(sinks: Sequence[object], name: str) -> list[Callable[[Any], object]]:
    return [method for sink in sinks if callable(method := getattr(sink, name, None))]
