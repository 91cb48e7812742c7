"""The line between one process and Redis: a proxy whose connections can go dead while new ones work."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from tests.support.proxy import Direction, Proxy

_born: ContextVar[int] = ContextVar("_born")


class AbandonableProxy(Proxy):
    def __init__(self, target: str) -> None:
        super().__init__(target, tcp=True)
        self._generation = 0
        self._forever = asyncio.Event()  # never set

    def abandon(self) -> None:
        """Stops passing bytes and ends on the present connections; new ones work."""
        self._generation += 1

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _born.set(self._generation)  # the tasks of this connection inherit it
        await super()._accept(reader, writer)

    async def _hold(self, direction: Direction) -> None:
        if _born.get() < self._generation:
            await self._forever.wait()
        await super()._hold(direction)
