"""Where workers and queues tell in numbers what they do: the records, who receives them, and one that keeps them.

A record is told once Redis has answered: what is counted has happened. Sinks are the user's, are called in the
event loop of whoever tells, and must not wait for anything; one that raises harms nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from ._core.delivery import Delivery

log = logging.getLogger("chasqui.worker")


class PromoterTick(msgspec.Struct, frozen=True):
    """The promoter has looked for due jobs."""

    promoted: int
    depth: int  # how many are delayed still
    oldest_pending_lag_ms: int  # for how long the first of them has been due; 0 if it is not


class LockOutcome(msgspec.Struct, frozen=True):
    """Who leads has changed, as this process sees it: it does (acquired), or another (held)."""

    outcome: Literal["acquired", "held"]
    role: Literal["promoter", "scheduler"] = "promoter"


class ReaderBatch(msgspec.Struct, frozen=True):
    """Entries have come, those that cannot be run among them."""

    size: int
    reclaimed: int  # how many of them another run had begun with


class JobOutcome(msgspec.Struct, frozen=True):
    """A handler has run."""

    kind: Literal["ok", "err", "panic"]  # panic: it raised what is not an Exception
    attempt: int  # 1 for the first run
    handler_duration_us: int
    name: str = ""


class RetryScheduled(msgspec.Struct, frozen=True):
    """A failed job waits for its next run."""

    attempt: int  # which that will be
    backoff_ms: int
    name: str = ""


class DlqRouted(msgspec.Struct, frozen=True):
    """A job is in the dead letters."""

    reason: str
    attempt: int  # the runs that it had; 0 if it could not be run at all
    name: str = ""


class JobsAdded(msgspec.Struct, frozen=True):
    """Jobs of one name are in Redis that were not there before."""

    count: int
    mode: Literal["now", "delayed", "repeat"]  # repeat: a repeatable has fired
    name: str = ""


class RedisAnswered(msgspec.Struct, frozen=True):
    """Redis has done what a worker asked of it, or could not be asked. Of workers with a sink that wants to know."""

    command: str  # ack, finish, store, reschedule, bury or promote; each of a whole batch
    seconds: float


Record = PromoterTick | LockOutcome | ReaderBatch | JobOutcome | RetryScheduled | DlqRouted | JobsAdded | RedisAnswered


class MetricsSink(Protocol):
    """Receives the records. Methods that are missing are not missed: have those that you need."""

    def promoter_tick(self, tick: PromoterTick) -> None:
        """Not told by processes that do not lead, unless they have promoted something."""

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None: ...
    def reader_batch(self, batch: ReaderBatch) -> None: ...
    def job_outcome(self, outcome: JobOutcome) -> None: ...
    def retry_scheduled(self, retry: RetryScheduled) -> None: ...
    def dlq_routed(self, dlq: DlqRouted) -> None: ...
    def jobs_added(self, added: JobsAdded) -> None: ...
    def redis_answered(self, answered: RedisAnswered) -> None: ...


METHODS = {
    PromoterTick: "promoter_tick",
    LockOutcome: "promoter_lock_outcome",
    ReaderBatch: "reader_batch",
    JobOutcome: "job_outcome",
    RetryScheduled: "retry_scheduled",
    DlqRouted: "dlq_routed",
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

    def jobs_added(self, added: JobsAdded) -> None:
        self.additions.append(added)

    def redis_answered(self, answered: RedisAnswered) -> None:
        self.redis_answers.append(answered)


class GuardedSinks:
    """What workers and queues tell their sinks through. An error in one is logged once, then counted."""

    def __init__(self, sinks: Sequence[object]) -> None:
        self.refused = 0  # records that a sink has raised at
        self._told = {kind: _methods(sinks, method) for kind, method in METHODS.items()}
        # hot: a sink that takes a batch as it is spares a record for each job
        whole = [sink for sink in sinks if hasattr(sink, "jobs_done")]
        self._told_whole = _methods(whole, "jobs_done")
        self._told_each = _methods([sink for sink in sinks if not any(sink is other for other in whole)], "job_outcome")

    def want(self, kind: type[Record]) -> bool:
        """Whether any of them has a method for it."""
        return bool(self._told[kind])

    def tell(self, record: Record) -> None:
        for method in self._told[type(record)]:
            self._call(method, record)

    def tell_all(self, records: Sequence[Record]) -> None:
        for record in records:
            self.tell(record)

    def jobs_done(self, jobs: list[Delivery]) -> None:
        """A batch of jobs is done and acked."""
        for method in self._told_whole:
            self._call(method, jobs)
        if self._told_each:
            for job in jobs:
                outcome = outcome_of(job, "ok")
                for method in self._told_each:
                    self._call(method, outcome)

    def _call(self, method: Callable[[Any], object], told: object) -> None:
        try:
            method(told)
        except BaseException as error:  # noqa: BLE001  a sink is the user's, and may raise anything
            self._see(error)

    def _see(self, error: BaseException) -> None:
        self.refused += 1
        if self.refused == 1:
            log.error("a metrics sink has raised, jobs go on; more of it is only counted", exc_info=error)
        elif self.refused in (10, 1000, 100_000):
            log.warning("a metrics sink has raised %d times", self.refused)


def outcome_of(job: Delivery, kind: Literal["ok", "err", "panic"]) -> JobOutcome:
    return JobOutcome(kind, job.attempt + 1, int((job.ended_at - job.started_at) * 1_000_000), job.name)


def _methods(sinks: Sequence[object], name: str) -> list[Callable[[Any], object]]:
    return [method for sink in sinks if callable(method := getattr(sink, name, None))]
