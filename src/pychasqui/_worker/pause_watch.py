"""Looks whether the queue is paused when somebody says so.

A message is a hint that anybody can publish, the key decides. One look at a time, ten a second if messages keep coming:
a flood of them costs nothing but that, and the last message of a flood is looked into, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from .._redis.broker import Broker
from ..errors import RedisTrouble

LOOKS_APART_S = 0.1


class PauseWatch:
    """hear() -> a look at the key, in the loop that the broker lives in -> on_pause(is_paused)."""

    def __init__(self, broker: Broker, on_pause: Callable[[bool], None]) -> None:
        self._broker = broker
        self._on_pause = on_pause
        self._is_hinted = False
        self._looking: asyncio.Task[None] | None = None

    def hear(self) -> None:
        self._is_hinted = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        while self._is_hinted:
            self._is_hinted = False
            with suppress(RedisTrouble):  # the keeper looks with its next renewal
                self._on_pause(await self._broker.is_paused())
            await asyncio.sleep(LOOKS_APART_S)
