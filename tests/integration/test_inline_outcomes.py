"""A task has the same outcome in a test of inline(app) as in a worker, whatever it raises or returns."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

import pytest

from pychasqui import App, ChasquiError, JobCancelled, JobFailed, RetryPolicy
from pychasqui.testing import inline

AT_ONCE = RetryPolicy(initial_ms=1, max_ms=1, jitter_ms=0)


class PanicException(BaseException):
    """Like the exception of a Rust panic in Python."""


def refuse(*_: object) -> NoReturn:
    raise PanicException("do not touch me")


SPECIAL = {f"__{name}__": refuse for name in ("str", "repr", "eq", "hash", "bool")} | {"__class__": property(refuse)}
LyingError: Any = type("LyingError", (Exception,), SPECIAL)
Monster: Any = type("Monster", (), SPECIAL)


def raising(error: Any, *arguments: object) -> Callable[[], Any]:
    def way() -> NoReturn:
        raise error(*arguments)

    return way


class Outer:
    class InnerError(Exception):
        """Its name has a dot."""


WAYS: dict[str, Callable[[], Any]] = {
    "returns a number": lambda: 5,
    "returns an object": object,
    "returns an object that raises": Monster,
    "returns an int that is too large": lambda: 2**70,
    "returns text that is no text": lambda: "\ud800",
    "raises": raising(LookupError, "why"),
    "raises what lies": raising(LyingError),
    "raises an error of a nested class": raising(Outer.InnerError, "x" * 100_000),
    "panics": raising(PanicException, "index out of bounds"),
    "exits": lambda: sys.exit(3),
    "interrupts": raising(KeyboardInterrupt),
    "cancels": raising(asyncio.CancelledError),
    "closes": raising(GeneratorExit),
    "stops": raising(StopIteration, 1),
    "says that it was cancelled": raising(JobCancelled, "another job was cancelled"),
}


def make_app(redis_url: str, queue_name: str, way: Callable[[], Any], runs: list[str]) -> App:
    app = App(redis_url, queues={queue_name: {"max_attempts": 2, "retry": AT_ONCE}})

    @app.task(queue=queue_name)
    async def coroutine() -> Any:
        runs.append("coroutine")
        await asyncio.sleep(0)
        return way()

    @app.task(queue=queue_name)
    def plain() -> Any:
        runs.append("plain")
        return way()

    return app


async def read_outcome(handle: Any) -> Any:
    try:
        return await handle.result()
    except JobFailed as error:
        return error.reason, error.error_type, error.error, error.attempts
    except ChasquiError as error:
        return type(error), str(error).replace(handle.id, "")


@pytest.mark.parametrize("name", WAYS)
async def test_a_task_ends_in_a_test_as_it_does_in_a_worker(redis_url: str, queue_name: str, name: str) -> None:
    runs: list[str] = []
    app = make_app(redis_url, queue_name, WAYS[name], runs)
    async with app, app.worker():
        handles = [await task.enqueue() for task in app.tasks.values()]
        expected = [await read_outcome(handle) for handle in handles]
        await app.queue(queue_name).dlq.purge()
    runs_of_worker, runs[:] = sorted(runs), []
    with inline(app) as jobs:
        handles = [await task.enqueue() for task in app.tasks.values()]
        await jobs.advance(timedelta(minutes=1))
        assert [await read_outcome(handle) for handle in handles] == expected
        assert len(jobs.dead) == sum(job.state == "dead" for job in jobs.all)
    assert sorted(runs) == runs_of_worker


async def test_any_error_of_a_task_is_raised_by_run_after_the_others_have_run(queue_name: str) -> None:
    for kind in (PanicException, SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
        runs: list[str] = []
        app = make_app("redis://no-server.invalid", queue_name, raising(kind), runs)
        with inline(app) as jobs:
            await app.enqueue_all([task.bind() for task in app.tasks.values()])
            with pytest.raises(kind):
                await jobs.run()
        assert runs == ["coroutine", "plain"]


async def test_a_result_that_cannot_be_stored_is_logged(queue_name: str, caplog: pytest.LogCaptureFixture) -> None:
    app = make_app("redis://no-server.invalid", queue_name, object, [])
    with inline(app) as jobs:
        await app.tasks["plain"].enqueue()
        await jobs.run()
        assert jobs.all[0].state == "done"
    assert "a object, cannot be stored, the job is done" in caplog.text
