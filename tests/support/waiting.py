"""Waiting for something to become true. Tests wait here, or on a signal, and never sleep for a guessed time.

Where a time is the promise itself, `first_below` measures it.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.05
PAUSES_A_WAIT = 20


@overload
async def eventually(
    predicate: Callable[[], Awaitable[T]], *, timeout: float = 40, every: float | None = None
) -> T: ...


@overload
async def eventually(predicate: Callable[[], T], *, timeout: float = 40, every: float | None = None) -> T: ...


async def eventually(predicate: Callable[[], Any], *, timeout: float = 40, every: float | None = None) -> Any:
    """Call `predicate` (plain or async) until it returns something true, and return that.

    It looks every 10 ms at first, and less often the longer it has waited: many tests wait at once, and their looks
    take the time of tests that work. With `every` it keeps to that.

    After `timeout` seconds it raises an AssertionError that shows the last returned value.
    """
    start = time.monotonic()
    deadline = start + timeout
    while True:
        answer = predicate()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not true within {timeout} s; the last value was {value!r}")
        await asyncio.sleep(_next_pause_s(now - start) if every is None else every)


def _next_pause_s(waited_s: float) -> float:
    return min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, waited_s / PAUSES_A_WAIT))


async def first_below(limit_s: float, measure: Callable[[], Awaitable[float]], *, within_s: float = 30) -> float:
    """Measures until a measurement is below the limit, and returns that one.

    After `within_s` seconds and three measurements it raises an AssertionError.

    A busy machine is late now and then. A defect is late every time.
    """
    measured: list[float] = []
    give_up_at = time.monotonic() + within_s
    while not measured or measured[-1] >= limit_s:
        has_time = len(measured) < 3 or time.monotonic() < give_up_at
        assert has_time, f"not below {limit_s:g} s in {len(measured)} tries: {measured}"
        measured.append(await measure())
    return measured[-1]
