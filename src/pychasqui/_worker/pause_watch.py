"""Looks whether the queue is paused, also when a message says so.

A message is a hint that anybody can publish, the key decides. One look at a time, fifty a second if messages keep
coming: a flood costs nothing but that, the last message of a flood is looked into, too, and a pause that follows
a resume holds as soon as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from .._redis.broker import Broker
from ..errors import RedisTrouble

LOOKS_APART_S = 0.02


class PauseWatch:
    """look() subscribes and looks at the key; each message makes it look again -> on_pause(is_paused).

    It lives in the loop of the broker, which is the heartbeat's.
    """

    def __init__(self, broker: Broker, on_pause: Callable[[bool], None]) -> None:
        self._broker = broker
        self._on_pause = on_pause
        self._is_hinted = False
        self._looking: asyncio.Task[None] | None = None

    async def look(self) -> None:
        await self._broker.subscribe_to_pause(self._hear)
        self._on_pause(await self._broker.is_paused())

    def _hear(self) -> None:
        self._is_hinted = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look_while_hinted())

    async def _look_while_hinted(self) -> None:
        while self._is_hinted:
            self._is_hinted = False
            with suppress(RedisTrouble):  # the heartbeat looks with its next renewal
                self._on_pause(await self._broker.is_paused())
            await asyncio.sleep(LOOKS_APART_S)
