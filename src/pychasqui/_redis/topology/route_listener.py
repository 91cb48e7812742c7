"""RouteListener: how a Route notifies one connection that the master of its slot may be another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress


class RouteListener:
    """Made in the loop of the connection. The route keeps it only for as long as the connection does."""

    def __init__(self, slot: int, on_change: Callable[[], None]) -> None:
        self.slot = slot
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()

    @property
    def is_in_running_loop(self) -> bool:
        return self._loop is asyncio.get_running_loop()

    def schedule_on_change(self) -> None:
        """Has `on_change` called in the connection's loop. May be called in any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._on_change)
