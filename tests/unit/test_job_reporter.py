"""Progress and log lines of a handler are sent at once from the worker's loop, also from other threads."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from pychasqui._core.run_timeouts import RunTimeouts
from pychasqui._wire.event import MAX_REASON_CHARS, Event
from pychasqui._wire.job_log import MAX_LINE_BYTES
from pychasqui._worker import job_reporter as module
from pychasqui._worker.job_reporter import MAX_LINES, REPORT_COST_BYTES, JobReporter
from pychasqui._worker.job_stops import JobStops
from pychasqui.errors import ConnectionLost, InvalidArgument
from pychasqui.job import Job
from tests.support.memory_broker import MemoryBroker

KEPT_MS = 60_000


class ReporterBench:
    def __init__(self, *, has_events: bool = True) -> None:
        self.broker = MemoryBroker()
        self.events: list[Event] = []
        self.stops = JobStops(RunTimeouts())
        emit = self.events.extend if has_events else None
        self.reporter = JobReporter(self.broker, kept_ms=KEPT_MS, emit=emit, stops=self.stops)
        self.reporter.remember_running_loop()
        self.job = Job("job-1", "mail", 1, _reporter=self.reporter, _own_id="job-1", _own_name="mail")

    @property
    def progress(self) -> list[tuple[str, int, int]]:
        """Job id, per cent, and how long it is kept."""
        return [arguments[:3] for arguments in self.broker.asked("send_progress")]

    @property
    def lines(self) -> list[tuple[str, str, int, int]]:
        """Job id, line, how many are kept, and how long."""
        return [arguments[:4] for arguments in self.broker.asked("send_log_line")]


async def test_progress_is_stored_and_has_an_event() -> None:
    bench = ReporterBench()
    bench.job.progress(1, 3, "a third")
    assert bench.progress == [("job-1", 33, KEPT_MS)]
    said = ("progress", 33, "done", "1", "total", "3", "note", "a third")
    assert bench.events == [Event("progress", "job-1", "mail", said)]


async def test_progress_is_kept_also_without_events() -> None:
    bench = ReporterBench(has_events=False)
    bench.job.progress(50)
    assert bench.progress == [("job-1", 50, KEPT_MS)]


async def test_progress_and_log_may_be_awaited_and_wait_for_nothing() -> None:
    bench = ReporterBench()
    turns = 0

    async def count() -> None:
        nonlocal turns
        turns += 1

    counting = asyncio.ensure_future(count())
    await bench.job.progress(10)
    await bench.job.log("a line")
    assert (turns, len(bench.progress), len(bench.lines)) == (0, 1, 1)
    await counting


async def test_more_than_the_total_is_100_percent() -> None:
    bench = ReporterBench()
    bench.job.progress(7, 5)
    assert bench.progress[0][1] == 100


@pytest.mark.parametrize("arguments", ((-1,), (1, 0), (float("nan"),), (float("inf"),), ("1",), (True,), (1, -1)))
async def test_a_value_that_is_no_progress_is_refused_and_not_sent(arguments: tuple[Any, ...]) -> None:
    bench = ReporterBench()
    with pytest.raises(InvalidArgument):
        bench.job.progress(*arguments)
    assert (bench.progress, bench.events) == ([], [])


async def test_a_note_is_cut() -> None:
    bench = ReporterBench()
    bench.job.progress(1, note="x" * 10_000)
    assert bench.events[0].extras[-1] == "x" * MAX_REASON_CHARS


async def test_a_line_is_kept_with_its_bounds() -> None:
    bench = ReporterBench()
    bench.job.log("a line")
    assert bench.lines == [("job-1", "a line", MAX_LINES, KEPT_MS)]


async def test_a_long_line_is_cut_between_two_letters() -> None:
    bench = ReporterBench()
    bench.job.log("x" + "ü" * MAX_LINE_BYTES)
    ((_, line, _, _),) = bench.lines
    assert line == "x" + "ü" * ((MAX_LINE_BYTES - 1) // 2)


async def test_a_line_that_is_no_unicode_is_kept() -> None:
    bench = ReporterBench()
    bench.job.log("a\ud800b")
    assert bench.lines[0][1] == "a\\ud800b"


async def test_a_call_from_another_thread_is_sent_in_the_workers_loop() -> None:
    bench = ReporterBench()

    def handler() -> None:
        bench.job.progress(10)
        bench.job.log("a line")

    await asyncio.to_thread(handler)
    await asyncio.sleep(0)
    assert (len(bench.progress), len(bench.lines)) == (1, 1)
    assert {call.thread for call in bench.broker.calls} == {threading.get_ident()}


async def test_a_call_from_another_loop_is_sent_in_the_workers_loop() -> None:
    bench = ReporterBench()

    async def handler() -> None:
        await bench.job.progress(10)

    await asyncio.to_thread(lambda: asyncio.run(handler()))
    await asyncio.sleep(0)
    assert {call.thread for call in bench.broker.calls} == {threading.get_ident()}


def test_a_call_of_a_thread_that_outlives_the_loop_is_dropped() -> None:
    async def make_bench() -> ReporterBench:
        return ReporterBench()

    bench = asyncio.run(make_bench())
    bench.job.progress(10)
    bench.job.log("a line")
    assert bench.broker.calls == []


async def test_a_refused_write_is_a_line_of_the_workers_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "chasqui.worker")
    bench = ReporterBench()
    bench.job.progress(10)
    ((*_, on_reply),) = bench.broker.asked("send_progress")
    on_reply(b"OK")
    assert caplog.records == []
    on_reply(ConnectionLost("away"))
    assert [record.getMessage() for record in caplog.records] == ["a job's progress or log line was not stored: away"]


async def test_reports_of_a_handler_without_a_turn_of_the_loop_are_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TURN_BYTES", 10 * REPORT_COST_BYTES)
    caplog.set_level(logging.INFO, "chasqui.worker")
    bench = ReporterBench()
    for number in range(100):
        bench.job.progress(number)
        bench.job.log(f"line {number}")
    assert 5 <= len(bench.progress) + len(bench.lines) <= 10
    (record,) = caplog.records
    assert "too much was reported at once: await progress() and log()" in record.getMessage()
    await asyncio.sleep(0)
    bench.job.log("in the next turn")
    assert bench.lines[-1][1] == "in the next turn"


async def test_a_handler_that_awaits_its_reports_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TURN_BYTES", 10 * REPORT_COST_BYTES)
    bench = ReporterBench()
    for number in range(50):
        await bench.job.progress(number)
        await bench.job.log(f"line {number}")
    assert [line for _, line, _, _ in bench.lines] == [f"line {number}" for number in range(50)]
    assert [percent for _, percent, _ in bench.progress] == list(range(50))


async def test_a_handler_that_awaits_its_reports_waits_while_the_server_is_behind() -> None:
    bench = ReporterBench()
    bench.broker.is_behind = True
    reporting = asyncio.ensure_future(bench.job.log("a line"))
    await asyncio.sleep(0.01)
    assert not reporting.done()
    bench.broker.is_behind = False
    await asyncio.wait_for(reporting, 10)


async def test_a_job_that_no_handler_was_given_cannot_say_anything() -> None:
    job = Job("job-1", "mail", 1)
    for say in (lambda: job.progress(1), lambda: job.log("a line")):
        with pytest.raises(RuntimeError, match="only a handler"):
            say()


@pytest.mark.parametrize("field", ("_own_id", "_own_name"))
async def test_a_job_that_has_lost_its_own_id_cannot_say_anything_either(field: str) -> None:
    bench = ReporterBench()
    setattr(bench.job, field, None)
    for say in (lambda: bench.job.progress(1), lambda: bench.job.log("a line")):
        with pytest.raises(RuntimeError, match="only a handler"):
            say()
    assert (bench.progress, bench.lines, bench.events) == ([], [], [])
