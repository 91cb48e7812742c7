"""Handlers that panic, exit, hang and return strange objects: each is a failed run like any other."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Any, NoReturn

import pytest

from pychasqui import InMemorySink, Job, Queue, ResultNotStored, RetryPolicy, Worker
from tests.support.streams import Stream
from tests.support.waiting import eventually

AT_ONCE = RetryPolicy(initial_ms=1, max_ms=1, jitter_ms=0)


class PanicException(BaseException):
    """Like the exception of a Rust panic in Python."""


def refuse(*_: object) -> NoReturn:
    raise PanicException("do not touch me")


TOUCHED = ("str", "repr", "eq", "hash", "reduce", "len", "iter", "bool")
SPECIAL = {f"__{name}__": refuse for name in TOUCHED} | {"__class__": property(refuse)}
ASKED_OF_ERRORS = {f"__{name}__": property(refuse) for name in ("cause", "context", "traceback", "notes")}
LyingError: Any = type("LyingError", (Exception,), SPECIAL | ASKED_OF_ERRORS)
Monster: Any = type("Monster", (), SPECIAL)
MonsterText: Any = type("MonsterText", (str,), dict.fromkeys(("__getitem__", "__format__", "encode"), refuse))


class OddlyNamedError(Exception):
    """An error whose class has a name that refuses to be cut."""


OddlyNamedError.__qualname__ = MonsterText("OddlyNamedError")


def panic() -> NoReturn:
    raise PanicException("index out of bounds")


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def close() -> NoReturn:
    raise GeneratorExit


def cancel() -> NoReturn:
    raise asyncio.CancelledError


def cancel_future() -> NoReturn:
    raise concurrent.futures.CancelledError


def stop() -> NoReturn:
    raise StopIteration("value")


def stop_async() -> NoReturn:
    raise StopAsyncIteration


def lie() -> NoReturn:
    raise LyingError


def name_oddly() -> NoReturn:
    raise OddlyNamedError


WAYS = (panic, sys.exit, interrupt, close, cancel, cancel_future, stop, stop_async, lie, name_oddly)


def handler_that(way: Callable[[], Any], kind: str, runs: Counter[str]) -> Callable[[Job], Any]:
    async def at_once(job: Job) -> None:
        runs[job.name] += 1
        if job.name == "bad":
            way()

    async def later(job: Job) -> None:
        runs[job.name] += 1
        await asyncio.sleep(0.001)
        if job.name == "bad":
            way()

    def plain(job: Job) -> None:
        runs[job.name] += 1
        if job.name == "bad":
            way()

    return {"at once": at_once, "after a step": later, "in a thread": plain}[kind]


@pytest.mark.parametrize("kind", ("at once", "after a step", "in a thread"))
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_any_raised_object_is_a_failed_run_like_any_other(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream, way: Callable[[], Any], kind: str
) -> None:
    runs: Counter[str] = Counter()
    sink = InMemorySink()
    handle = handler_that(way, kind, runs)
    async with make_worker(handle, max_attempts=3, retry=AT_ONCE, metrics=sink, concurrency=2) as worker:
        await queue.add("bad", 1)
        await queue.add_bulk({"name": "good", "data": number} for number in range(50))
        await eventually(lambda: len(sink.dlq_routes) == 1)
        await queue.add("good", 50)
        await eventually(lambda: runs["good"] == 51)
        await eventually(stream.is_settled)
        assert worker.is_running
        closing_at = monotonic()
    assert monotonic() - closing_at < 5
    assert runs == {"bad": 3, "good": 51}
    (letter,) = await queue.dlq.page()
    assert (letter.reason, letter.attempts) == ("retries_exhausted", 3)
    is_error = way in (cancel_future, stop_async, lie, name_oddly) or (way is stop)
    assert {outcome.kind for outcome in sink.job_outcomes if outcome.name == "bad"} == {"err" if is_error else "panic"}
    await queue.dlq.purge()


async def test_a_panic_is_kept_with_its_type_text_and_place(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream
) -> None:
    runs: Counter[str] = Counter()
    async with make_worker(handler_that(panic, "in a thread", runs), max_attempts=1):
        await queue.add("bad")
        (letter,) = await eventually(lambda: queue.dlq.page())
    assert (letter.error_type, letter.error) == ("PanicException", "index out of bounds")
    assert letter.traceback is not None
    assert "in panic" in letter.traceback
    assert "pychasqui" not in letter.traceback.replace(__file__, "")
    await queue.dlq.purge()


async def test_a_function_that_returns_a_generator_has_failed(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream
) -> None:
    def numbers(job: Job) -> Any:
        yield job.data

    async with make_worker(lambda job: numbers(job), max_attempts=1):
        await queue.add("bad")
        (letter,) = await eventually(lambda: queue.dlq.page())
    assert (letter.error_type, letter.error) == (
        "TypeError",
        "the handler returned a generator, whose body has not run",
    )
    await queue.dlq.purge()


class MonsterDict(dict[str, Any]):
    def items(self) -> NoReturn:
        raise PanicException("do not look inside")

    def __repr__(self) -> NoReturn:
        raise PanicException


class Nameless(type):
    def __getattribute__(cls, name: str) -> NoReturn:
        raise PanicException


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


def loop() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


MONSTERS: dict[str, Callable[[], Any]] = {
    "dict": lambda: MonsterDict(a=1),
    "inside": lambda: {"a": [MonsterDict(a=1)]},
    "object": Monster,
    "class": lambda: Nameless("Monster", (), {}),
    "nameless": lambda: Nameless("Monster", (), {})(),
    "key": lambda: {Monster: 1},
    "deep": deep,
    "loop": loop,
    "function": lambda: print,
    "number": lambda: 10**30,
    "surrogate": lambda: "\ud800",
}


@pytest.mark.parametrize("is_plain", (False, True), ids=("async", "plain"))
@pytest.mark.parametrize("stores", (False, True), ids=("not stored", "stored"))
async def test_a_result_that_cannot_be_read_does_not_fail_its_job_and_waiters_get_the_reason(
    queue: Queue,
    make_worker: Callable[..., Worker],
    stream: Stream,
    caplog: pytest.LogCaptureFixture,
    is_plain: bool,
    stores: bool,
) -> None:
    runs: Counter[str] = Counter()

    def plain(job: Job) -> Any:
        runs[job.data] += 1
        return MONSTERS[job.data]()

    async def handle(job: Job) -> Any:
        return plain(job)

    trouble = "could not be stored: " if stores else "its worker stores no results"
    async with make_worker(plain if is_plain else handle, store_results=stores, max_attempts=1) as worker:
        for kind in MONSTERS:
            job = await queue.add("monster", kind)
            with pytest.raises(ResultNotStored, match=trouble):
                await job.wait_for_result(timeout=40)
        await eventually(stream.is_settled)
        assert worker.is_running
    assert runs == dict.fromkeys(MONSTERS, 1)
    assert await queue.dlq.page() == []
    lines = [record for record in caplog.records if "cannot be stored, the job is done" in record.getMessage()]
    assert len(lines) == (len(MONSTERS) if stores else 0)


class PanickingSink:
    def job_outcome(self, outcome: Any) -> NoReturn:
        sys.exit("no more metrics")

    def reader_batch(self, batch: Any) -> NoReturn:
        raise PanicException


async def test_a_sink_that_panics_stops_no_job(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream
) -> None:
    ran: list[int] = []

    async def handle(job: Job) -> None:
        ran.append(job.data)

    async with make_worker(handle, metrics=PanickingSink()) as worker:
        await queue.add_bulk({"name": "send", "data": number} for number in range(20))
        await eventually(lambda: len(ran) == 20)
        await eventually(stream.is_settled)
        assert worker.is_running


MonsterStr: Any = type(
    "MonsterStr", (str,), dict.fromkeys(("encode", "__getitem__", "__len__", "__format__", "__add__"), refuse)
)


class MonsterFloat(float):
    def __format__(self, spec: str) -> str:
        return str(MonsterStr("7"))


@pytest.mark.parametrize("is_plain", (False, True), ids=("async", "plain"))
async def test_log_lines_and_progress_of_a_handler_lose_their_own_classes(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream, is_plain: bool
) -> None:
    class Speaks:
        def __str__(self) -> str:
            return MonsterStr("a line")

    def plain(job: Job) -> None:
        job.log(Speaks())  # type: ignore[arg-type]
        job.progress(MonsterFloat(1), 3, Speaks())  # type: ignore[arg-type]

    async def handle(job: Job) -> None:
        plain(job)

    async with make_worker(plain if is_plain else handle, max_attempts=1):
        job = await queue.add("speaks")
        await eventually(stream.is_settled)
        assert await queue.get_job_logs(job.id) == ["a line"]
        assert await queue.get_job_progress(job.id) == 33
    assert await queue.dlq.page() == []


@pytest.mark.parametrize("is_plain", (False, True), ids=("async", "plain"))
async def test_a_deadline_that_is_over_is_one_warning_with_how_many_which_and_what_becomes_of_them(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream, caplog: pytest.LogCaptureFixture, is_plain: bool
) -> None:
    started: list[str] = []
    may_end = threading.Event()

    def plain(job: Job) -> None:
        started.append(job.name)
        may_end.wait(10)

    async def handle(job: Job) -> None:
        started.append(job.name)
        await asyncio.sleep(60)

    async with make_worker(plain if is_plain else handle, shutdown_deadline_s=0.1, lease_ms=1000):
        await queue.add_bulk({"name": name} for name in ("slow", "slow", "video"))
        await eventually(lambda: len(started) == 3)
    may_end.set()
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "0.1 s are over, and 3 of its jobs still run (2 of 'slow', 1 of 'video'): " in line
    fate = "when the lease of 1 s has ended, and have used up an attempt" if is_plain else "have 5 s to clean up"
    assert fate in line
    await stream.clear()


async def test_a_cancelled_handler_rolls_back_and_its_job_is_handed_back(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream
) -> None:
    steps: list[str] = []

    async def handle(job: Job) -> None:
        steps.append("begun")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.8)
            steps.append("rolled back")
            raise

    async with make_worker(handle, shutdown_deadline_s=0.1):
        await queue.add("transfer")
        await eventually(lambda: steps)
    assert steps == ["begun", "rolled back"]
    ran: list[int] = []

    async def again(job: Job) -> None:
        ran.append(job.attempt)

    async with make_worker(again):
        await eventually(lambda: ran == [0])
        await eventually(stream.is_settled)
