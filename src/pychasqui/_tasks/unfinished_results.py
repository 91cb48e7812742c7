"""What a plain function returns before its body has run: the coroutine of an `async def` behind a plain decorator.

It runs in the event loop, as that of a Worker's plain handler does.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from types import AsyncGeneratorType, GeneratorType
from typing import Any, TypeGuard

from .wire_values import SCALARS


def is_awaitable_refusing_generators(result: Any) -> TypeGuard[Awaitable[Any]]:
    """Whether there is a rest to await. Raises TypeError for a generator, whose body would never run."""
    kind = type(result)
    if kind in SCALARS:
        return False
    if inspect.isawaitable(result):
        return True
    if kind in (GeneratorType, AsyncGeneratorType):
        raise TypeError("the task returned a generator, whose body has not run")
    return False


def close_if_coroutine(awaitable: Awaitable[Any]) -> None:
    """Closes a coroutine that is not to run; one that is left open would warn that it was never awaited."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()
