"""Names, ids and errors that others have written cannot pass for ours in a log line, an error or on a terminal."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Job, JobFailed, Queue, QueueEvents, ReplyError, UnrecoverableError, Worker
from pychasqui._core.retry_options import BackoffSpec, RetryOverride
from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.member import make_delayed_member
from pychasqui._wire.msgpack import encode_data
from pychasqui.cli.exits import run_to_exit_code
from tests.support.fake_server import FakeServer, redis_that_says
from tests.support.waiting import eventually

FORGED = "\r\n2026-01-01 CRITICAL all is lost \x1b[2J\u202e\u2028"
RAW = FORGED.encode() + b"\xff" + b"x" * 5000


class Lines(logging.Handler):
    """Everything that pychasqui logs, formatted as a plain program would."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.exc_info = None  # a traceback has lines by right; what is in it is the user's own code
        self.lines.append(self.format(record))


@pytest.fixture
def lines() -> Iterator[list[str]]:
    logger, handler = logging.getLogger("chasqui"), Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler.lines
    logger.setLevel(before)
    logger.removeHandler(handler)


def assert_harmless(lines: list[str]) -> None:
    """Below a failure stand the handler's own frames, which begin with blanks as no line of a log does."""
    for line in lines:
        first, *frames = line.split("\n")
        assert first.isprintable(), line
        assert all(frame.isprintable() and frame.startswith("  ") for frame in frames), line
        assert len(line) < 3000, line


async def fail(job: Job) -> None:
    if job.attempt:
        raise UnrecoverableError(FORGED)
    raise ValueError(FORGED * 100)


@pytest.mark.leaves_keys("dead letters and foreign keys")
async def test_names_ids_and_errors_in_the_queue_forge_no_line(
    make_worker: Callable[..., Worker],
    queue: Queue,
    witness: redis.asyncio.Redis,
    queue_name: str,
    lines: list[str],
) -> None:
    prefix = f"{{chasqui:{queue_name}}}"
    retry = RetryOverride(3, BackoffSpec(FORGED * 20, 5, None, None, 0))
    envelope = encode_envelope(FORGED, encode_data(1), 5, 0, retry)
    await witness.xadd(f"{prefix}:stream", {"d": envelope, "n": RAW})
    await witness.xadd(f"{prefix}:stream", {"d": b"\xc1" + RAW, "n": FORGED})
    await witness.xadd(f"{prefix}:stream", {FORGED: FORGED})
    await witness.zadd(f"{prefix}:delayed", {make_delayed_member(FORGED[:50], b"\xc1"): 5, RAW: 5})
    await witness.hset(f"{prefix}:repeat:spec:{FORGED}", "spec", RAW)
    await witness.zadd(f"{prefix}:repeat", {FORGED: 5})
    await witness.zadd(f"{prefix}:workers", {RAW: 5})
    await witness.set(f"{prefix}:promoter:lock", RAW, px=300)
    await witness.set(f"{prefix}:scheduler:lock", RAW, px=300)
    async with make_worker(fail, max_attempts=3) as worker:
        await witness.xgroup_createconsumer(f"{prefix}:stream", "default", RAW)
        await witness.xadd(f"{prefix}:stream", {"d": encode_envelope("late", encode_data(1), 5, 0, None), "n": "late"})
        await eventually(lambda: _count(queue, 6), timeout=20)
        await witness.set(f"{prefix}:delayed", RAW)
        await asyncio.sleep(0.7)  # for as long as the promoter takes to meet it
        assert worker.is_running
    assert any("dead" in line for line in lines)
    assert_harmless(lines)


@pytest.mark.leaves_keys("dead letters")
async def test_a_jobs_data_is_in_no_line(
    make_worker: Callable[..., Worker], queue: Queue, witness: redis.asyncio.Redis, queue_name: str, lines: list[str]
) -> None:
    secret = "ada@example.org-4711"

    async def fail_or_return(job: Job) -> Any:
        if job.name == "ok":
            return job.data
        raise (ValueError if job.attempt == 0 else UnrecoverableError)("without the data")

    async with make_worker(fail_or_return, store_results=True):
        for name in ("ok", "fails"):
            await queue.add(name, {"mail": secret})
        await queue.add("later", {"mail": secret}, delay_ms=5)
        bad = encode_envelope("bad", b"\xc1" + secret.encode(), 5, 0, None)
        await witness.xadd(f"{{chasqui:{queue_name}}}:stream", {"d": bad})
        await eventually(lambda: _count(queue, 3))
    assert lines
    assert not [line for line in lines if secret in line]


async def _count(queue: Queue, most: int) -> bool:
    return await queue.dlq.count() >= most


async def test_the_name_of_an_event_forges_no_line(
    redis_url: str, witness: redis.asyncio.Redis, queue_name: str, lines: list[str]
) -> None:
    called = asyncio.Event()

    def careless(event: Any) -> None:
        called.set()
        raise RuntimeError("of the callback")

    async with QueueEvents(queue_name, redis_url=redis_url) as events:
        events.on(None, careless)
        running = asyncio.create_task(events.run())
        await witness.xadd(f"{{chasqui:{queue_name}}}:events", {"e": RAW, "id": RAW, "n": RAW, RAW: RAW})
        await asyncio.wait_for(called.wait(), 40)
        await events.close()
        await running
    assert any("callback" in line for line in lines)
    assert_harmless(lines)


async def test_an_error_text_of_an_event_is_escaped_in_the_raised_error(
    queue: Queue, witness: redis.asyncio.Redis, queue_name: str
) -> None:
    waiting = asyncio.create_task(queue.wait_for_result("j", timeout=40))
    fields = {"e": "dlq", "id": "j", "reason": RAW, "error_type": RAW, "error": RAW, "attempt": "9" * 5000}
    await asyncio.sleep(0.05)
    await witness.xadd(f"{{chasqui:{queue_name}}}:events", fields)
    with pytest.raises(JobFailed) as caught:
        await waiting
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 4000
    assert caught.value.error.startswith(FORGED)  # the field has it as it is


class TestServerErrors:
    def test_a_servers_words_are_escaped_and_cut(self) -> None:
        error = ReplyError(f"ERR {FORGED} " + "x" * 100_000)
        assert str(error).isprintable()
        assert repr(error).isprintable()
        assert len(str(error)) < 1000
        assert error.code == "ERR"

    def test_the_command_shows_no_control_characters(self, capsys: pytest.CaptureFixture[str]) -> None:
        def refuse() -> None:
            raise ReplyError(f"ERR {FORGED}")

        assert run_to_exit_code(refuse) == 4
        printable = capsys.readouterr().err
        assert re.fullmatch(r"Error: [^\x00-\x1f\u2028\u202e]+\n", printable)


async def test_answers_of_a_hostile_server_are_quoted_harmlessly(lines: list[str]) -> None:
    hello = redis_that_says("8.6.3", server="redis\x1b[2J" + "x" * 1000)

    def refuse(command: list[bytes]) -> bytes | None:
        return hello(command) if command[0].upper() == b"HELLO" else b"-ERR \x1b[2J" + b"x" * 5000 + b"\r\n"

    async with FakeServer(refuse) as server, Queue("q", redis_url=server.url, timeout_s=2.0) as queue:
        with pytest.raises(ReplyError) as caught:
            await queue.is_paused()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    assert_harmless(lines)
