"""Asks something of several queues at the same time. One that cannot be read does not hide the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ..errors import ReplyError, printable
from .options import CommandContext

T = TypeVar("T")


async def read_each_queue_warning_of_unreadable(
    context: CommandContext, queue_names: Sequence[str], read: Callable[[str], Awaitable[T]], *, are_named: bool
) -> dict[str, T]:
    """Returns the answers by queue. If a queue that nobody has named cannot be read, a warning says so."""
    answers = await asyncio.gather(*map(read, queue_names), return_exceptions=True)
    found: dict[str, T] = {}
    for name, answer in zip(queue_names, answers, strict=True):
        if isinstance(answer, ReplyError) and not are_named:  # a key of another type, or a user of other queues
            why = printable(str(answer), 500)
            context.output.print_message_to_stderr(f"Warning: queue {name} cannot be read: {why}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found[name] = answer
    return found
