"""The event writer writes events without waiting, drops them rather than delay a job, and counts drops."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest

from pychasqui._core.delivery import Delivery
from pychasqui._redis.event_batch import EventBatch
from pychasqui._wire.event import Event
from pychasqui._worker.event_writer import GATHER_S, SETTLED_IN_S, EventWriter
from pychasqui.errors import ConnectionLost, RedisTrouble, ReplyError
from tests.support.memory_broker import MemoryBroker
from tests.support.worker_parts import make_shared

PATIENCE_S = 2.0
DROPPED = "events are dropped; jobs go on"


class EventWriterBench:
    def __init__(self, *, stores_results: bool = False) -> None:
        self.broker = MemoryBroker()
        self.event_writer = EventWriter(self.broker, make_shared(), max_len=1000, stores_results=stores_results)

    @property
    def batches(self) -> list[EventBatch]:
        return [batch for (batch,) in self.broker.asked("write_or_drop_events")]

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """Kinds of events and job ids, as they are in the event stream."""
        return [(event.kind, event.job_id) for event in self.broker.events]

    def start(self, number: int, **fields: Any) -> Delivery:
        job = Delivery(f"job-{number}", name="mail", data=number, **fields)
        self.event_writer.queue_active_event(job)
        return job

    def end(self, *jobs: Delivery) -> None:
        for job in jobs:
            job.ended_at = job.started_at + 0.25
        self.broker.write_or_drop_events(self.event_writer.make_completed_and_missing_active_events(list(jobs)))


@pytest.fixture
def bench() -> EventWriterBench:
    return EventWriterBench()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, "chasqui.worker")
    return lambda: [record.getMessage() for record in caplog.records]


class TestTimes:
    def test_events_have_the_time_of_a_clock_that_was_set_after_the_start(
        self, bench: EventWriterBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As it is behind the one that stands still while the machine sleeps."""
        later_s = time.time() + 3600
        monkeypatch.setattr("pychasqui._worker.event_writer.time.time", lambda: later_s)
        bench.start(1, started_at=monotonic())
        bench.event_writer.write_or_drop_active_events()
        batch = bench.event_writer.make_completed_and_missing_active_events(
            [Delivery("job-2", name="mail", started_at=monotonic(), ended_at=monotonic())]
        )
        ((_, _, _, started_ms, ended_ms, _),) = batch.completed
        (active,) = bench.broker.events
        for at_ms in (active.at_ms, int(started_ms), ended_ms):
            assert abs(at_ms / 1000 - later_s) < 60


class TestOrder:
    def test_both_events_of_a_quick_job_are_written_with_its_ack(self, bench: EventWriterBench) -> None:
        bench.end(bench.start(1))
        assert bench.kinds == [("active", "job-1"), ("completed", "job-1")]
        assert len(bench.batches) == 1

    def test_an_active_event_is_written_once(self, bench: EventWriterBench) -> None:
        job = bench.start(1)
        bench.event_writer.write_or_drop_active_events()
        bench.end(job)
        bench.event_writer.write_or_drop_active_events()
        assert bench.kinds == [("active", "job-1"), ("completed", "job-1")]
        assert [len(batch.completed) for batch in bench.batches] == [0, 1]

    def test_no_active_event_is_written_after_the_end_of_the_job(self, bench: EventWriterBench) -> None:
        bench.end(bench.start(1))
        bench.event_writer.write_or_drop_active_events()
        assert len(bench.batches) == 1

    def test_the_failed_event_comes_after_the_active_event(self, bench: EventWriterBench) -> None:
        job = bench.start(1)
        bench.event_writer.write_or_drop_events_behind_active([Event("failed", job.id, job.name)])
        assert bench.kinds == [("active", "job-1"), ("failed", "job-1")]

    def test_an_ack_that_is_sent_again_writes_the_active_event_once(self, bench: EventWriterBench) -> None:
        job = bench.start(1)
        bench.end(job)
        bench.end(job)
        assert bench.kinds == [("active", "job-1"), ("completed", "job-1"), ("completed", "job-1")]

    async def test_starts_are_gathered_for_a_moment_and_written_at_once(self, bench: EventWriterBench) -> None:
        bench.event_writer.start()
        await asyncio.sleep(0)
        for number in range(5):
            bench.start(number)
            await asyncio.sleep(0)
        assert bench.batches == []
        async with asyncio.timeout(PATIENCE_S):
            while not bench.batches:
                await asyncio.sleep(0.001)
        assert bench.kinds == [("active", f"job-{number}") for number in range(5)]
        assert len(bench.batches) == 1
        await bench.event_writer.end(timeout_s=PATIENCE_S)

    async def test_the_active_event_of_an_ended_job_is_written_with_its_ack(self, bench: EventWriterBench) -> None:
        job = bench.start(1)
        job.started_at, job.ended_at = monotonic() - 0.1, monotonic()
        bench.event_writer.start()
        await asyncio.sleep(3 * GATHER_S)
        assert bench.batches == []
        bench.broker.write_or_drop_events(bench.event_writer.make_completed_and_missing_active_events([job]))
        await bench.event_writer.end(timeout_s=PATIENCE_S)
        assert bench.kinds == [("active", "job-1"), ("completed", "job-1")]
        assert len(bench.batches) == 1

    async def test_the_active_event_of_a_running_job_takes_none_of_an_ended_job_along(
        self, bench: EventWriterBench
    ) -> None:
        ended = bench.start(1)
        ended.started_at, ended.ended_at = monotonic() - 0.1, monotonic()
        bench.start(2)
        bench.event_writer.start()
        await asyncio.sleep(3 * GATHER_S)
        assert bench.kinds == [("active", "job-2")]
        bench.broker.write_or_drop_events(bench.event_writer.make_completed_and_missing_active_events([ended]))
        await bench.event_writer.end(timeout_s=PATIENCE_S)
        assert bench.kinds[1:] == [("active", "job-1"), ("completed", "job-1")]
        assert len(bench.batches) == 2

    async def test_the_active_event_is_written_before_a_late_ack(self, bench: EventWriterBench) -> None:
        bench.start(1).ended_at = monotonic() - SETTLED_IN_S
        bench.event_writer.start()
        async with asyncio.timeout(PATIENCE_S):
            while not bench.batches:
                await asyncio.sleep(0.001)
        assert bench.kinds == [("active", "job-1")]
        await bench.event_writer.end(timeout_s=PATIENCE_S)

    async def test_no_active_event_is_left_unwritten_at_the_end(self, bench: EventWriterBench) -> None:
        bench.event_writer.start()
        await asyncio.sleep(0)
        bench.start(1)
        await bench.event_writer.end(timeout_s=PATIENCE_S)
        assert bench.kinds == [("active", "job-1")]


class TestWords:
    def test_the_completed_event_has_attempt_times_and_duration(self, bench: EventWriterBench) -> None:
        job = bench.start(1, attempt=2)
        bench.end(job)
        (batch,) = bench.batches
        ((job_id, name, attempt, started, ended, duration_us),) = batch.completed
        assert (batch.max_len, batch.has_results, job_id, name, attempt) == (1000, False, "job-1", "mail", 3)
        assert abs(int(duration_us) - 250_000) <= 1
        assert 249 <= int(ended) - int(started) <= 251

    def test_the_completed_event_says_whether_the_result_is_stored(self) -> None:
        bench = EventWriterBench(stores_results=True)
        unstored = bench.start(2, why_not_stored="a set is in it")
        bench.end(bench.start(1, result=b"x"), unstored, bench.start(3, result=b"y"))
        (batch,) = bench.batches
        assert batch.has_results
        assert batch.others[-1].extras[-4:] == ("stored", 0, "why", "a set is in it")
        assert sorted(job_id for kind, job_id in bench.kinds if kind == "completed") == [
            "job-1",
            "job-2",
            "job-3",
        ]

    def test_completed_events_with_stored_results_go_in_one_call(self) -> None:
        bench = EventWriterBench(stores_results=True)
        bench.end(bench.start(1, result=b"x"), bench.start(2, result=b"y"))
        (batch,) = bench.batches
        assert (len(batch.completed), batch.others) == (2, [])


class TestDropping:
    def test_events_that_the_broker_does_not_take_are_counted_and_logged_once(
        self, bench: EventWriterBench, lines: Callable[[], list[str]]
    ) -> None:
        bench.broker.trouble_of["write_or_drop_events"] = ConnectionLost("the connection is lost")
        bench.end(bench.start(1), bench.start(2))
        bench.event_writer.write_or_drop_events_behind_active([Event("drained")])
        assert (bench.broker.events, bench.event_writer.dropped) == ([], 3)
        assert lines() == [f"{DROPPED}: the connection is lost"]

    @pytest.mark.parametrize("trouble", (ReplyError("OOM command not allowed"), ConnectionLost("cut")))
    def test_events_that_are_refused_or_lost_are_counted(self, bench: EventWriterBench, trouble: RedisTrouble) -> None:
        bench.end(bench.start(1), bench.start(2))
        assert bench.event_writer.dropped == 0
        bench.broker.trouble_of["write_or_drop_events"] = trouble
        bench.event_writer.write_or_drop_events_behind_active([Event("drained")])
        bench.end(bench.start(3), bench.start(4))
        assert bench.event_writer.dropped == 3

    def test_a_line_is_written_once_until_events_are_taken_again(
        self, bench: EventWriterBench, lines: Callable[[], list[str]]
    ) -> None:
        for trouble in (
            None,
            ReplyError("OOM no"),
            ReplyError("OOM no"),
            None,
            None,
            ConnectionLost("cut"),
            ReplyError("OOM no"),
        ):
            bench.broker.trouble_of = {} if trouble is None else {"write_or_drop_events": trouble}
            bench.event_writer.write_or_drop_events_behind_active([Event("drained")])
        assert lines() == [f"{DROPPED}: OOM no", f"{DROPPED}: cut"]
        assert bench.event_writer.dropped == 4


def test_no_method_of_the_event_writer_can_wait() -> None:
    """A plain function runs to its end before any other code of the loop."""
    for name in (
        "queue_active_event",
        "make_completed_and_missing_active_events",
        "write_or_drop_events_behind_active",
        "write_or_drop_active_events",
    ):
        assert not inspect.iscoroutinefunction(getattr(EventWriter, name))
