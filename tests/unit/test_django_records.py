"""What a worker stores about the runs of a Django task, without Django."""

from __future__ import annotations

import pytest

from pychasqui._wire.job_log import MAX_LINE_BYTES
from pychasqui.integrations.django.run_records import (
    FailureLine,
    RunError,
    RunRecord,
    StartLine,
    encode_log_line_cutting_traceback,
    parse_run_history,
    read_run_record_or_none,
    record_to_dict,
)
from tests.support.cases import in_one_test

START = StartLine(1000, "host:1", "shop.tasks.send")


def failure(at_ms: int, *, is_last: bool = False, traceback: str = "ValueError: x") -> FailureLine:
    return FailureLine(at_ms, is_last, RunError("builtins.ValueError", traceback))


def test_the_lines_of_runs_become_their_history() -> None:
    again = StartLine(3000, "host:2", "shop.tasks.send")
    lines: list[StartLine | FailureLine] = [START, failure(2000), again, failure(4000, is_last=True)]
    history = parse_run_history(map(encode_log_line_cutting_traceback, lines))
    assert (history.task, history.started_at_ms, history.last_attempted_at_ms) == ("shop.tasks.send", 1000, 3000)
    assert (history.workers, len(history.errors), history.is_running) == (["host:1", "host:2"], 2, False)
    assert history.finished_at_ms == 4000


def test_a_replayed_task_is_not_finished() -> None:
    lines: list[StartLine | FailureLine] = [START, failure(2000, is_last=True), START]
    history = parse_run_history(map(encode_log_line_cutting_traceback, lines))
    assert (history.is_running, history.finished_at_ms) == (True, None)


@in_one_test("line", ("hello", "{}", "[]", '{"chasqui": "started"}', '{"chasqui": 5}', "", '{"chasqui'))
def test_lines_of_the_task_itself_are_passed_over(line: str) -> None:
    history = parse_run_history([line, encode_log_line_cutting_traceback(START), line])
    assert (history.workers, history.is_running) == (["host:1"], True)


@pytest.mark.parametrize("letter", ("x", "é", "😀", '"', "\n", "\x00"))
def test_a_long_traceback_keeps_its_end_and_fits_into_a_line(letter: str) -> None:
    written = encode_log_line_cutting_traceback(failure(1, traceback=letter * 20_000 + "the end"))
    assert MAX_LINE_BYTES // 2 < len(written.encode()) <= MAX_LINE_BYTES
    assert parse_run_history([written]).errors[0].traceback.endswith("the end")


def test_a_record_is_read_as_it_was_written_and_nothing_else_is() -> None:
    record = RunRecord(
        task="shop.tasks.send",
        args=[1],
        kwargs={"a": None},
        value={"b": [1.5]},
        enqueued_at_ms=1,
        started_at_ms=2,
        last_attempted_at_ms=3,
        finished_at_ms=4,
        workers=["host:1"],
        errors=[RunError("builtins.ValueError", "x")],
    )
    assert read_run_record_or_none(record_to_dict(record)) == record
    for other in (None, 5, {}, {**record_to_dict(record), "args": 5}):
        assert read_run_record_or_none(other) is None
