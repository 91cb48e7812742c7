"""What promoter and scheduler have in common: of all processes one leads, and sleeps until the next thing is due.

It hears of what is due sooner, and looks by itself besides, because messages can get lost. Whatever happens to Redis,
it goes on; only end() ends it. The lease only spares the server the polling of the others: what they do is safe
without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Literal

from .._redis.connection import Connection
from ..errors import RedisTrouble
from ..sinks import LockOutcome, Record
from .service import Outage, Service


class Leader(Service):
    """_look() does what is due and says when to look again; _let_go() ends the lease."""

    role: Literal["promoter", "scheduler"]

    def __init__(self, connection: Connection, outage: Outage, tell: Callable[[Record], None] | None) -> None:
        super().__init__()
        self._connection = connection
        self._outage = outage
        self._tell = tell
        self._told_lead: bool | None = None  # what was told last about who leads
        self._leads = False
        self._next_due = float("inf")  # when the leader knows the next one to be due, monotonic

    def hear(self, seconds: float) -> None:
        """Somebody has stored what is due in so many seconds."""
        due = monotonic() + seconds
        if self._leads and due < self._next_due:
            self._next_due = due
            self.wake()

    async def end(self, patience_s: float) -> None:
        await super().end(patience_s)
        if self._leads and self._connection.live_socket() is not None:
            with suppress(RedisTrouble, TimeoutError):  # it ends by itself
                async with asyncio.timeout(patience_s):
                    await self._let_go()

    async def _look(self) -> float:
        """Returns how long to wait at the most."""
        raise NotImplementedError

    async def _let_go(self) -> None:
        raise NotImplementedError

    def _soonest(self) -> float:
        """When something is known to be due."""
        return self._next_due

    async def _run(self) -> None:
        while not self._is_stopping:
            try:
                wait_s = await self._look()
            except RedisTrouble as error:
                wait_s = self._outage.goes_on(error)
            else:
                self._outage.is_over()
            look_at = monotonic() + wait_s
            while not self._is_stopping and (left := min(look_at, self._soonest()) - monotonic()) > 0:
                await self._sleep(left)

    def _tell_lead(self) -> None:
        """Who leads, whenever that changes."""
        if self._tell is not None and self._leads != self._told_lead:
            self._told_lead = self._leads
            self._tell(LockOutcome("acquired" if self._leads else "held", self.role))
