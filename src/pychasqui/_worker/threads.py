"""Runs plain functions as handlers, each call in a thread of a pool.

What a function raises comes back as a value: a future would treat StopIteration, SystemExit and the like in ways of its
own, and a lane that waits for it would hang or end.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from ..job import Job


class Threads:
    """run() is a handler that can be awaited; it sees the context variables of its lane."""

    def __init__(self, handler: Callable[[Job], Any], count: int) -> None:
        self._handler = handler
        self._pool = ThreadPoolExecutor(count, "chasqui-lane")

    async def run(self, job: Job) -> Any:
        call, context = _Call(self._handler, job), contextvars.copy_context()
        try:
            outcome = await asyncio.get_running_loop().run_in_executor(self._pool, context.run, call)
        except RuntimeError:  # no thread could be started, but the pool keeps the call
            call.is_off = True
            raise
        if type(outcome) is _Raised:
            try:
                raise outcome.error
            finally:
                del outcome  # or the error would be part of a cycle
        return await outcome if _is_awaitable(outcome) else outcome  # a lambda around an async function

    def close(self) -> None:
        """Start nothing more. What runs goes on: a thread cannot be stopped."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Raised:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Call:
    """One call of the handler, made in a thread."""

    def __init__(self, handler: Callable[[Job], Any], job: Job) -> None:
        self.is_off = False
        self._handler = handler
        self._job = job

    def __call__(self) -> Any:
        if self.is_off:
            return None
        try:
            result = self._handler(self._job)
            if type(result) in (GeneratorType, AsyncGeneratorType) and not _is_awaitable(result):
                raise TypeError("the handler returned a generator, whose body has not run")
        except StopIteration as stop:  # as a coroutine would do it, which cannot raise it either
            error = RuntimeError("the handler raised StopIteration")
            error.__cause__ = stop
            return _Raised(error)
        except BaseException as error:  # noqa: BLE001  a handler may raise anything
            return _Raised(error)
        return result


def _is_awaitable(result: object) -> bool:
    """inspect.isawaitable(), which asks the object for its class."""
    try:
        return inspect.isawaitable(result)
    except BaseException:  # noqa: BLE001  the object is the user's, and may raise anything
        return False
