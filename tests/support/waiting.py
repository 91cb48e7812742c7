"""Waiting for something to become true. Tests wait here, or on a signal, and never sleep for a guessed time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")


@overload
async def eventually(predicate: Callable[[], Awaitable[T]], *, timeout: float = 5, every: float = 0.01) -> T: ...


@overload
async def eventually(predicate: Callable[[], T], *, timeout: float = 5, every: float = 0.01) -> T: ...


async def eventually(predicate: Callable[[], Any], *, timeout: float = 5, every: float = 0.01) -> Any:
    """Call `predicate` (plain or async) until it returns something true, and return that.

    After `timeout` seconds it raises an AssertionError that shows the last returned value.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = predicate()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {timeout} s; the last value was {value!r}")
        await asyncio.sleep(every)
