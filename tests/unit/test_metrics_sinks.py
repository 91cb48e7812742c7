"""Sinks get the records that they have methods for, and a sink that raises stops no other."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pychasqui._core.delivery import Delivery
from pychasqui.metrics import (
    METHODS,
    DlqRouted,
    GuardedSinks,
    InMemorySink,
    JobOutcome,
    JobsAdded,
    JobsCancelled,
    LockOutcome,
    PromoterTick,
    ReaderBatch,
    Record,
    RedisAnswered,
    RetryScheduled,
)

RECORDS: list[Record] = [
    PromoterTick(1, 2, 3),
    LockOutcome("acquired"),
    ReaderBatch(10, 1),
    JobOutcome("err", 1, 20, "mail"),
    RetryScheduled(2, 100, "mail"),
    DlqRouted("unrecoverable", 1, "mail"),
    JobsCancelled(1, "removed", "mail"),
    JobsAdded(3, "delayed", "mail"),
    RedisAnswered("ack", 0.001),
]


def job_done(name: str = "mail", attempt: int = 0, seconds: float = 0.5) -> Delivery:
    return Delivery("id", name=name, attempt=attempt, entry_id=b"1-0", started_at=10.0, ended_at=10.0 + seconds)


class Broken:
    """Raises at everything."""

    def __init__(self) -> None:
        self.calls = 0

    def job_outcome(self, outcome: JobOutcome) -> None:
        self.calls += 1
        raise RuntimeError("no room for numbers")


class Whole:
    """Takes batches of jobs as they are."""

    def __init__(self) -> None:
        self.batches: list[list[Delivery]] = []
        self.outcomes: list[JobOutcome] = []

    def jobs_done(self, jobs: list[Delivery]) -> None:
        self.batches.append(jobs)

    def job_outcome(self, outcome: JobOutcome) -> None:
        self.outcomes.append(outcome)


def test_the_sink_in_memory_keeps_each_record_where_it_belongs() -> None:
    sink = InMemorySink()
    GuardedSinks([sink]).record_all(RECORDS)
    kept = [*sink.promoter_ticks, *sink.lock_outcomes, *sink.reader_batches]
    kept += [*sink.job_outcomes, *sink.retries_scheduled, *sink.dlq_routes, *sink.cancellations]
    kept += [*sink.additions, *sink.redis_answers]
    assert kept == RECORDS


def test_every_record_has_a_method_of_its_own() -> None:
    assert [type(record) for record in RECORDS] == list(METHODS)
    assert len(set(METHODS.values())) == len(METHODS)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_cannot_be_changed(record: Any) -> None:
    with pytest.raises(AttributeError):
        setattr(record, record.__struct_fields__[0], 0)


def test_a_batch_of_done_jobs_is_an_outcome_each() -> None:
    sink = InMemorySink()
    GuardedSinks([sink]).jobs_done([job_done(attempt=0), job_done("video", attempt=2, seconds=0.25)])
    assert sink.job_outcomes == [JobOutcome("ok", 1, 500_000, "mail"), JobOutcome("ok", 3, 250_000, "video")]


def test_a_sink_that_takes_batches_gets_no_outcome_for_each_job_that_is_done() -> None:
    whole, sink, jobs = Whole(), InMemorySink(), [job_done(), job_done()]
    sinks = GuardedSinks([whole, sink])
    sinks.jobs_done(jobs)
    assert (whole.batches, whole.outcomes) == ([jobs], [])
    assert len(sink.job_outcomes) == 2
    sinks.record(JobOutcome("err", 1, 20))
    assert whole.outcomes == [JobOutcome("err", 1, 20)]


def test_a_sink_may_lack_any_method() -> None:
    sinks = GuardedSinks([object()])
    sinks.record_all(RECORDS)
    sinks.jobs_done([job_done()])
    assert sinks.refused == 0


def test_a_record_without_a_method_in_any_sink_is_not_wanted() -> None:
    assert GuardedSinks([Broken(), object()]).has_sink_for(JobOutcome)
    assert not GuardedSinks([Broken(), object()]).has_sink_for(RedisAnswered)


def test_a_sink_that_raises_does_not_keep_records_from_the_next() -> None:
    broken, sink = Broken(), InMemorySink()
    sinks = GuardedSinks([broken, sink])
    sinks.record_all(RECORDS)
    sinks.jobs_done([job_done(), job_done()])
    assert (broken.calls, sinks.refused, len(sink.job_outcomes)) == (3, 3, 3)


def test_a_sink_that_raises_is_logged_once_with_its_traceback_and_then_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sinks = GuardedSinks([Broken()])
    for _ in range(12):
        sinks.record(JobOutcome("ok", 1, 1))
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]
    assert caplog.records[0].exc_info is not None
    assert "10 times" in caplog.records[1].getMessage()
    assert sinks.refused == 12


def test_an_interrupt_during_the_call_of_a_sink_is_no_error_of_the_sink() -> None:
    class Interrupted:
        def job_outcome(self, outcome: JobOutcome) -> None:
            raise KeyboardInterrupt  # as the handler of a signal does

    sinks = GuardedSinks([Interrupted()])
    with pytest.raises(KeyboardInterrupt):
        sinks.record(JobOutcome("ok", 1, 1))
    assert sinks.refused == 0
