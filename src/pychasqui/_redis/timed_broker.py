"""How long Redis takes for what a worker asks of it again and again, for those who want to be told.

Only what is awaited in the worker's own loop: reads wait for jobs and not for Redis, and leases are kept from another
thread. A broker whose times nobody wants is left as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from ..metrics import GuardedSinks, RedisAnswered
from .broker import Broker

TIMED = ("ack", "finish", "store", "reschedule", "bury", "promote")


def time_commands(broker: Broker, sinks: GuardedSinks | None) -> None:
    if sinks is None or not sinks.want(RedisAnswered):
        return
    for command in TIMED:
        setattr(broker, command, _timed(command, getattr(broker, command), sinks))


def _timed(command: str, ask: Callable[..., Awaitable[Any]], sinks: GuardedSinks) -> Callable[..., Awaitable[Any]]:
    async def run(*arguments: Any, **options: Any) -> Any:
        begun = monotonic()
        try:
            return await ask(*arguments, **options)
        finally:  # one that fails may have taken longest of all
            sinks.tell(RedisAnswered(command, monotonic() - begun))

    return run
