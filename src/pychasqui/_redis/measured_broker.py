"""A Broker that records how long Redis takes for the calls that a worker repeats, for sinks with `redis_answered`.

Only calls that the worker's own loop awaits are timed: reads wait for jobs and not for Redis, and another thread renews
the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from ..metrics import GuardedSinks, RedisAnswered
from .broker import AckInFlight, Broker
from .connection import Connection
from .keys import Keys
from .replies import Promotion, SettledJobs


def make_plain_or_measured_broker(connection: Connection, keys: Keys, sinks: GuardedSinks | None) -> Broker:
    """Returns a MeasuredBroker if a sink wants the times, else a plain Broker."""
    if sinks is None or not sinks.has_sink_for(RedisAnswered):
        return Broker(connection, keys)
    return MeasuredBroker(connection, keys, sinks)


class MeasuredBroker(Broker):
    """Each method does what Broker's does and records its time. The names of the commands are part of the metrics."""

    def __init__(self, connection: Connection, keys: Keys, sinks: GuardedSinks) -> None:
        super().__init__(connection, keys)
        self._sinks = sinks

    def send_ack(self, *arguments: Any, **options: Any) -> asyncio.Future[None] | AckInFlight:
        begun = monotonic()
        ack = super().send_ack(*arguments, **options)
        if isinstance(ack, AckInFlight):  # the other one is ack() below
            ack.on_answer(lambda: self._record_time_since(begun, "ack"))
        return ack

    async def ack(self, *arguments: Any, **options: Any) -> None:
        with self._recording_call_time("ack"):
            await super().ack(*arguments, **options)

    async def ack_and_release_uniqueness_keys(self, *arguments: Any, **options: Any) -> None:
        with self._recording_call_time("finish"):  # the label of the metric stays what it was
            await super().ack_and_release_uniqueness_keys(*arguments, **options)

    async def ack_and_store_results(self, *arguments: Any, **options: Any) -> int:
        with self._recording_call_time("store"):
            return await super().ack_and_store_results(*arguments, **options)

    async def reschedule(self, *arguments: Any, **options: Any) -> SettledJobs:
        with self._recording_call_time("reschedule"):
            return await super().reschedule(*arguments, **options)

    async def bury(self, *arguments: Any, **options: Any) -> SettledJobs:
        with self._recording_call_time("bury"):
            return await super().bury(*arguments, **options)

    async def try_to_lead_and_promote_batch(self, *arguments: Any, **options: Any) -> Promotion:
        with self._recording_call_time("promote"):
            return await super().try_to_lead_and_promote_batch(*arguments, **options)

    @contextmanager
    def _recording_call_time(self, command: str) -> Iterator[None]:
        begun = monotonic()
        try:
            yield
        finally:  # failed calls count: they may take the longest
            self._record_time_since(begun, command)

    def _record_time_since(self, begun: float, command: str) -> None:
        self._sinks.record(RedisAnswered(command, monotonic() - begun))
