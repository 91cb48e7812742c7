"""A handler's context variables are its own, though it runs in a task that it shares."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextvars import ContextVar
from typing import Any

import pytest

from pychasqui._worker.job_context import HandlerExit
from tests.support.contexts import Suspension, in_own_context

SEEN: ContextVar[str] = ContextVar("SEEN", default="nothing")


async def test_a_variable_that_one_call_sets_is_not_seen_by_the_next() -> None:
    async def handler(value: str) -> str:
        before = SEEN.get()
        SEEN.set(value)
        await asyncio.sleep(0)
        assert SEEN.get() == value
        return before

    assert [await in_own_context(handler, value) for value in ("a", "b")] == ["nothing", "nothing"]
    assert SEEN.get() == "nothing"


async def test_a_variable_of_the_caller_is_seen() -> None:
    async def handler(_: None) -> str:
        return SEEN.get()

    token = SEEN.set("from outside")
    assert await in_own_context(handler, None) == "from outside"
    SEEN.reset(token)


async def test_tasks_of_a_handler_inherit_its_context() -> None:
    async def child() -> str:
        await asyncio.sleep(0)
        return SEEN.get()

    async def handler(value: str) -> str:
        SEEN.set(value)
        return await asyncio.create_task(child())

    assert await in_own_context(handler, "a") == "a"


async def test_a_variable_can_be_reset_by_its_token_after_an_await() -> None:
    async def handler(_: None) -> str:
        token = SEEN.set("a")
        await asyncio.sleep(0)
        SEEN.reset(token)
        return SEEN.get()

    assert await in_own_context(handler, None) == "nothing"


async def test_errors_and_results_come_through() -> None:
    async def fails(_: None) -> None:
        await asyncio.sleep(0)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await in_own_context(fails, None)


async def test_an_awaitable_that_is_no_coroutine_is_awaited() -> None:
    class Awaitable:
        def __await__(self) -> Generator[Any, None, str]:
            yield from asyncio.sleep(0).__await__()
            return "awaited"

    assert await in_own_context(lambda _: Awaitable(), None) == "awaited"
    future = asyncio.get_running_loop().create_future()
    future.set_result("a future")
    assert await in_own_context(lambda _: future, None) == "a future"


async def test_cancelling_the_task_reaches_the_handler_first() -> None:
    log = []

    async def handler(_: None) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            log.append("cleaned up")
            raise

    async def lane() -> None:
        await in_own_context(handler, None)

    task = asyncio.create_task(lane())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["cleaned up"]


async def test_a_timeout_inside_the_handler_is_the_handlers_own() -> None:
    async def handler(_: None) -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            return "timed out"
        return "slept"

    assert await in_own_context(handler, None) == "timed out"
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_a_task_group_inside_the_handler_works() -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def handler(_: None) -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(double(number)) for number in range(3)]
        return [task.result() for task in tasks]

    assert await in_own_context(handler, None) == [0, 2, 4]


def test_a_coroutine_that_is_closed_halfway_closes_its_handler() -> None:
    """As it happens to a lane whose event loop is gone."""
    steps: list[str] = []

    async def handler(_: None) -> None:
        try:
            await Suspension()
        finally:
            steps.append("closed")

    lane = in_own_context(handler, None)
    lane.send(None)
    lane.close()
    assert steps == ["closed"]


def test_a_generator_exit_raised_by_a_handler_is_an_error() -> None:
    async def handler(_: None) -> None:
        await Suspension()
        raise GeneratorExit("mine")

    lane = in_own_context(handler, None)
    lane.send(None)
    with pytest.raises(HandlerExit) as raised:
        lane.send(None)
    assert raised.value.error.args == ("mine",)
