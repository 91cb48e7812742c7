"""Lines of a log say which job they are about, fit on one line, and cannot be forged by a job's name or data."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from pychasqui import logs
from pychasqui._core.delivery import Delivery
from pychasqui._worker.job_reporter import JobReporter
from pychasqui._worker.plain_handler import as_async_handler
from pychasqui._worker.wrapped_handler import wrap_to_move_into_job
from tests.support.cases import in_one_test
from tests.support.contexts import in_own_context

JOB = Delivery("id-1", name="welcome", data={"to": "ada"}, attempt=2)
FIELDS = {"queue": "mails", "job_id": "id-1", "job_name": "welcome", "attempt": 2}


class Lines(logging.Handler):
    """Keeps what it is given, as JSON and as it was before."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.addFilter(logs.JobFilter())
        self.setFormatter(logs.JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def fields(self) -> list[dict[str, Any]]:
        return [read(self.format(record)) for record in self.records]


def read(line: str) -> dict[str, Any]:
    assert line.isascii()
    assert line.isprintable()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def lines() -> Iterator[Lines]:
    lines = Lines()
    logger = logging.getLogger("shop")
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield lines
    logger.removeHandler(lines)


log = logging.getLogger("shop")


def formatted(message: str, *arguments: object, **more: Any) -> dict[str, Any]:
    record = logging.LogRecord("shop", logging.INFO, "shop.py", 1, message, arguments, more.pop("exc_info", None))
    record.__dict__.update(more)
    return read(logs.JsonFormatter().format(record))


class TestContext:
    async def test_a_line_that_a_handler_logs_carries_its_job(self, lines: Lines) -> None:
        async def handle(job: Delivery) -> None:
            log.info("first")
            await asyncio.sleep(0)
            await asyncio.create_task(child())

        async def child() -> None:
            log.info("second")

        await in_own_context(logs.bind_job_to_context("mails", handle), JOB)
        log.info("after")
        assert [line["event"] for line in lines.fields()] == ["first", "second", "after"]
        assert [FIELDS.items() <= line.items() for line in lines.fields()] == [True, True, False]
        assert lines.fields()[2].keys() == {"ts", "level", "logger", "event"}

    async def test_a_plain_function_has_it_too(self, lines: Lines) -> None:
        handler = wrap_to_move_into_job(as_async_handler(lambda job: log.info("here")), cast(JobReporter, None))
        await in_own_context(logs.bind_job_to_context("mails", handler), JOB)
        assert FIELDS.items() <= lines.fields()[0].items()

    async def test_jobs_that_run_side_by_side_keep_theirs_apart(self, lines: Lines) -> None:
        async def handle(job: Delivery) -> None:
            for _ in range(3):
                log.info(job.id)
                await asyncio.sleep(0)

        run = logs.bind_job_to_context("mails", handle)

        async def lane(job: Delivery) -> None:
            await in_own_context(run, job)

        await asyncio.gather(*(lane(Delivery(f"id-{number}", name="n")) for number in range(5)))
        assert len(lines.records) == 15
        assert all(line["job_id"] == line["event"] for line in lines.fields())

    def test_a_line_about_a_job_carries_it_and_later_lines_do_not(self, lines: Lines) -> None:
        def failed(job: Delivery, error: BaseException) -> None:
            log.info("%s", error)

        logs.bind_job_to_call("mails", failed)(JOB, ValueError("no"))
        log.info("after")
        assert FIELDS.items() <= lines.fields()[0].items()
        assert "job_id" not in lines.fields()[1]

    async def test_fields_that_a_line_has_already_stay(self, lines: Lines) -> None:
        async def handle(job: Delivery) -> None:
            log.info("other", extra={"job_id": "mine"})

        await in_own_context(logs.bind_job_to_context("mails", handle), JOB)
        assert lines.fields()[0]["job_id"] == "mine"
        assert lines.fields()[0]["queue"] == "mails"

    async def test_a_format_of_ones_own_can_use_the_fields(self, lines: Lines) -> None:
        lines.setFormatter(logging.Formatter("%(job_name)s: %(message)s", defaults={"job_name": "-"}))

        async def handle(job: Delivery) -> None:
            log.info("in")

        await in_own_context(logs.bind_job_to_context("mails", handle), JOB)
        log.info("out")
        assert [lines.format(record) for record in lines.records] == ["welcome: in", "-: out"]

    async def test_a_job_s_name_cannot_pass_for_another_line(self, lines: Lines) -> None:
        async def handle(job: Delivery) -> None:
            log.info("in")

        evil = Delivery("a\r\nb", name="x\x1b[2J\u202e" + "y" * 500)
        await in_own_context(logs.bind_job_to_context("mails", handle), evil)
        record: Any = lines.records[0]
        assert record.job_id == "a\\r\\nb"
        assert record.job_name.startswith("x\\x1b[2J\\u202eyyy")
        assert len(record.job_name) < 250

    def test_the_context_costs_nothing_without_a_filter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(logs, "_filters_made", 0)
        assert logs.bind_job_to_context("mails", print) is print
        assert logs.bind_job_to_call("mails", print) is print
        logs.JobFilter()
        assert logs.bind_job_to_context("mails", print) is not print


class TestJson:
    def test_a_line_says_when_where_and_what(self) -> None:
        record = logging.LogRecord("shop", logging.WARNING, "shop.py", 1, "sent %d", (3,), None)
        record.created = datetime(2026, 11, 15, 9, 0, 0, 123000, UTC).timestamp()
        line = logs.JsonFormatter().format(record)
        assert line == '{"ts":"2026-11-15T09:00:00.123Z","level":"WARNING","logger":"shop","event":"sent 3"}'

    def test_an_error_is_in_the_same_line(self) -> None:
        try:
            raise ValueError("no\nroom")
        except ValueError:
            line = formatted("failed", exc_info=sys.exc_info())
        assert line["error.type"] == "ValueError"
        assert line["error.message"] == "no\nroom"
        assert line["error.stack"].endswith("ValueError: no\nroom")

    def test_extra_values_are_shown(self) -> None:
        line = formatted("x", size=3, tags=["a", {"b": None}], at=datetime(2026, 1, 1, tzinfo=UTC), event="mine")
        assert line["size"] == 3
        assert line["tags"] == ["a", {"b": None}]
        assert line["at"] == "2026-01-01 00:00:00+00:00"
        assert line["event"] == "x"

    @in_one_test("value", (float("nan"), {(1, 2): 3}, {1, 2}, b"\xff", "\ud800", "\x00\n\u2028", object))
    def test_any_extra_value_makes_a_line(self, value: object) -> None:
        assert "value" in formatted("x", value=value)

    def test_a_value_that_contains_itself_or_has_no_text_makes_a_line(self) -> None:
        class Silent:
            def __str__(self) -> str:
                raise RuntimeError

        endless: list[object] = []
        endless.append(endless)
        deep: list[object] = []
        for _ in range(100_000):
            deep = [deep]
        line = formatted("x", endless=endless, deep=deep, silent=Silent())
        assert line["endless"] == "[[...]]"
        assert "deep" in line
        assert "Silent" in line["silent"]
        while deep:  # else its end recurses, too
            deep = deep.pop()  # type: ignore[assignment]

    def test_an_argument_that_has_no_text_or_does_not_fit_makes_a_line(self) -> None:
        class Silent:
            def __str__(self) -> str:
                raise RuntimeError

        for text, argument in (("to %s", Silent()), ("to %d", "nobody"), ("to %s %s", 1)):
            record = logging.LogRecord("shop", logging.INFO, "", 0, text, (argument,), None)
            line = json.loads(logs.JsonFormatter().format(record))
            assert line["event"] == f"{text} (its arguments cannot be formatted)"

    def test_a_line_is_bounded_and_keeps_what_matters(self) -> None:
        more: dict[str, object] = {f"more{number}": "\U0001f600" * 100_000 for number in range(50)}
        line = logs.JsonFormatter().format(
            logging.makeLogRecord(
                {"name": "shop", "msg": "\U0001f600" * 100_000, **more, "job_id": "id-1", "n": [0] * 9000}
            )
        )
        assert len(line) < logs.MAX_LINE_CHARS + 100
        found = read(line)
        assert found["event"].startswith("\U0001f600")
        assert found["job_id"] == "id-1"
        assert found["is_cut"] is True
