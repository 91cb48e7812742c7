"""ServerClock: the time of the server, estimated. The server is asked only while somebody wants to know."""

from __future__ import annotations

import asyncio
import time

from .._core.clock import lease_clock
from .._redis.broker import Broker
from ..errors import RedisTrouble, ReplyError

ASK_EVERY_S = 10.0
ASK_AGAIN_S = 1.0


class ServerClock:
    """ask_if_due_and_estimate_now_ms() asks the first time, and every ten seconds; in between it counts on."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._offset_ms: float | None = None  # of the server's clock against lease_clock(), which a sleep does not stop
        self._ask_at = 0.0
        self._asking = asyncio.Lock()

    async def ask_if_due_and_estimate_now_ms(self) -> float:
        """Returns the server's time; this machine's if the server refuses to say.

        Waits for a server that has never answered: by a wrong clock of this machine, jobs would count as expired.
        """
        if lease_clock() >= self._ask_at:
            async with self._asking:
                while lease_clock() >= self._ask_at:
                    await self._try_to_measure_clock_offset_or_pause()
        return time.time() * 1000 if self._offset_ms is None else self._offset_ms + lease_clock() * 1000

    async def _try_to_measure_clock_offset_or_pause(self) -> None:
        """Sets when to ask the server again, also if it has refused; a server that is away is asked again at once."""
        asked_at = lease_clock()
        try:
            server_ms = await self._broker.read_server_time_ms()
        except RedisTrouble as error:
            if self._offset_ms is None and not isinstance(error, ReplyError):
                await asyncio.sleep(ASK_AGAIN_S)
            else:
                self._ask_at = lease_clock() + ASK_AGAIN_S
            return
        now = lease_clock()
        self._offset_ms = server_ms - (asked_at + now) * 500
        self._ask_at = now + ASK_EVERY_S
