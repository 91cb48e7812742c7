"""Calls of plain functions in threads: what close() does to those that run, that wait, and that come later."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from pychasqui import Closed
from pychasqui._tasks.thread_calls import ThreadCalls
from tests.support.waiting import eventually


async def test_a_close_lets_the_function_that_runs_end_and_starts_none_that_waits() -> None:
    calls, begun, gate = ThreadCalls(1), list[str](), threading.Event()

    def run(name: str) -> str:
        begun.append(name)
        assert gate.wait(60)
        return name

    first, second = (
        asyncio.create_task(calls.run_to_end_once_begun(partial(run, name))) for name in ("first", "second")
    )
    await eventually(lambda: begun)
    calls.close_without_waiting()
    gate.set()
    assert await asyncio.wait_for(first, 10) == "first"
    with pytest.raises(Closed):
        await asyncio.wait_for(second, 10)
    assert begun == ["first"]


@pytest.mark.parametrize("has_run", (False, True))
async def test_a_call_after_the_close_is_refused(has_run: bool) -> None:
    calls = ThreadCalls(1)
    if has_run:
        assert await calls.run_to_end_once_begun(lambda: 1) == 1
    calls.close_without_waiting()
    with pytest.raises(Closed):
        await asyncio.wait_for(calls.run_to_end_once_begun(lambda: 2), 10)


async def test_a_caller_that_has_left_does_not_hinder_the_close() -> None:
    calls, begun, gate = ThreadCalls(1), threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        assert gate.wait(60)

    running, waiting = (
        asyncio.create_task(calls.run_to_end_once_begun(block)),
        asyncio.create_task(calls.run_to_end_once_begun(lambda: None)),
    )
    await eventually(begun.is_set)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    calls.close_without_waiting()
    gate.set()
    await asyncio.wait_for(running, 10)
