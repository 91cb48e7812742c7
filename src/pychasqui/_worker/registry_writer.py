"""Writes the name of the worker's queue into the registry of queues."""

from __future__ import annotations

from .._core.clock import lease_clock
from .._core.limits import REGISTER_EVERY_S
from .._redis.broker import Broker


class RegistryWriter:
    """register_queue_if_due() is called from the heartbeat's thread: it writes at the start, and then once a day."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._due_at = float("-inf")

    async def register_queue_if_due(self) -> None:
        """Raises if the connection is lost; then it is still due."""
        if lease_clock() >= self._due_at:
            await self._broker.register_queue_or_log_refusal()
            self._due_at = lease_clock() + REGISTER_EVERY_S
