"""Gathers finished entries and acks them in batches: all that finish while one ack is on its way share the next."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from .._redis.broker import Broker
from ..config import ACK_BATCH
from ..errors import RedisTrouble
from ..job import Job

log = logging.getLogger("chasqui.worker")


class Acker:
    """An ack that fails is sent again until it gets through: acking twice is harmless, not acking is a second run."""

    def __init__(self, broker: Broker, group: str) -> None:
        self._broker = broker
        self._group = group
        self._ids: list[bytes] = []
        self._sleeper: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="chasqui acker")

    def done(self, job: Job, result: Any) -> None:
        self._ids.append(job._entry_id)
        if self._sleeper is not None:
            self._wake()

    async def stop(self) -> None:
        """Ack what is left, then end."""
        self._is_stopping = True
        self._wake()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        pause = 0.0
        while True:
            while not self._ids:
                if self._is_stopping:
                    return
                self._sleeper = asyncio.get_running_loop().create_future()
                await self._sleeper
            batch = self._ids[:ACK_BATCH]
            try:
                await self._broker.ack(self._group, batch)
            except RedisTrouble as error:
                if not pause:
                    log.warning("acks are held back until Redis takes them again: %s", error)
                pause = min(max(pause * 2, 0.05), 1.0)
                await asyncio.sleep(pause)
                continue
            if pause:
                log.info("acks go through again")
                pause = 0.0
            del self._ids[: len(batch)]

    def _wake(self) -> None:
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)
