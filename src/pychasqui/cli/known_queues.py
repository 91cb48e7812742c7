"""Says of an empty answer whether the queue is known at all: a name that was mistyped looks like an empty queue."""

from __future__ import annotations

from ..errors import ReplyError, printable
from .options import CommandContext


async def explain_empty_queue(context: CommandContext, queue_name: str, default_text: str) -> str:
    """Returns the text `default_text`, or that no such queue is known, with the name that may be meant."""
    if context.output.is_json:  # which has no messages
        return default_text
    try:
        async with context.make_queues() as queues:
            found = await queues.find_names()
    except ReplyError:  # a user may have the rights of one queue alone
        return default_text
    if queue_name in found.names or not found.is_complete:
        return default_text
    from difflib import get_close_matches

    close = get_close_matches(queue_name, found.names, n=1)
    hint = (
        f"did you mean {printable(close[0])}? chasqui ps lists those that are" if close else "chasqui ps lists queues"
    )
    return f"no queue {queue_name} is known at this Redis; {hint}"
