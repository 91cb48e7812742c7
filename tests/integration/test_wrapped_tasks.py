"""An `async def` behind a plain decorator is a plain function that returns a coroutine: it runs, in the event loop."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from pychasqui import App, Depends, JobFailed
from pychasqui._tasks.thread_calls import ThreadCalls
from pychasqui.testing import inline
from tests.support.waiting import eventually

tenant: ContextVar[str] = ContextVar("tenant", default="")


def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        tenant.set("shop")
        return function(*args, **kwargs)

    return wrapper


@wrap
async def rate() -> int:
    await asyncio.sleep(0)
    return 10


def make_app(redis_url: str, queue_name: str, ran: list[Any]) -> App:
    app = App(redis_url)

    @app.task(queue=queue_name)
    @wrap
    async def alone(number: int) -> str:
        await asyncio.sleep(0)
        ran.append((number, threading.current_thread() is threading.main_thread()))
        return f"{number} of {tenant.get()}"

    @app.task(queue=queue_name)
    @wrap
    async def injected(number: int, rate: int = Depends(rate)) -> int:
        ran.append((number, threading.current_thread() is threading.main_thread()))
        return number * rate

    @app.task(queue=queue_name, attempts=1)
    @wrap
    def generator(number: int) -> Any:
        ran.append((number, False))
        yield number

    return app


async def test_a_wrapped_coroutine_function_runs_in_the_loop_of_the_worker(redis_url: str, queue_name: str) -> None:
    ran: list[Any] = []
    app = make_app(redis_url, queue_name, ran)
    async with app, app.worker():
        first: Any = await app.tasks["alone"].enqueue(1)
        assert await first.result() == "1 of shop"
        second: Any = await app.tasks["injected"].enqueue(2)
        assert await second.result() == 20
    assert ran == [(1, True), (2, True)]


async def test_a_wrapped_coroutine_function_runs_in_an_inline_test(queue_name: str) -> None:
    ran: list[Any] = []
    app = make_app("redis://no-server.invalid", queue_name, ran)
    with inline(app) as jobs:
        first: Any = await app.tasks["alone"].enqueue(1)
        second: Any = await app.tasks["injected"].enqueue(2)
        await jobs.run()
        assert (await first.result(), await second.result()) == ("1 of shop", 20)


async def test_a_wrapped_generator_function_fails_its_job(redis_url: str, queue_name: str) -> None:
    ran: list[Any] = []
    app = make_app(redis_url, queue_name, ran)
    async with app, app.worker():
        handle: Any = await app.tasks["generator"].enqueue(1)
        with pytest.raises(JobFailed, match="returned a generator, whose body has not run"):
            await handle.result()
        await app.queue(queue_name).dlq.purge()
    assert ran == []


async def test_a_coroutine_does_not_begin_if_its_call_was_cancelled_in_the_thread() -> None:
    calls, begun, gate, ran = ThreadCalls(1), threading.Event(), threading.Event(), list[int]()

    async def work() -> None:
        ran.append(1)

    def block() -> Any:
        begun.set()
        assert gate.wait(60)
        return work()

    call = asyncio.create_task(calls.run_to_end_once_begun(block))
    await eventually(begun.is_set)
    call.cancel()
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    calls.close_without_waiting()
    assert ran == []
