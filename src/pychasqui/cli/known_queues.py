"""Says of a queue that has nothing whether it is known at all: a name that was mistyped looks like an empty queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ReplyError, printable
from .options import CommandContext

if TYPE_CHECKING:
    from ..queues import Queues


async def explain_empty_queue(context: CommandContext, queue_name: str, default_text: str) -> str:
    """Returns the text `default_text`, or that no such queue is known, with the name that may be meant."""
    if context.output.is_json:  # which has no messages
        return default_text
    async with context.make_queues() as queues:
        unknown = await find_and_describe_unknown_queues(queues, [queue_name])
    return unknown.get(queue_name, default_text)


async def find_and_describe_unknown_queues(queues: Queues, queue_names: Sequence[str]) -> dict[str, str]:
    """Returns the names that no queue has, each with a text that says so and names the queue that may be meant."""
    try:
        found = await queues.find_names()
    except ReplyError:  # a user may have the rights of one queue alone
        return {}
    if not found.is_complete:
        return {}
    return {name: _describe_unknown_queue(name, found.names) for name in queue_names if name not in found.names}


def _describe_unknown_queue(queue_name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(queue_name, known, n=1)
    hint = (
        f"did you mean {printable(close[0])}? chasqui ps lists those that are" if close else "chasqui ps lists queues"
    )
    return f"no queue {queue_name} is known at this Redis; {hint}"
