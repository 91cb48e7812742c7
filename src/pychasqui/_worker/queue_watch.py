"""Knows whether the queue is paused and which of its jobs are cancelled.

Each renewal of the lease asks whether that is so, and a message makes it look at once. A message is a hint that anybody
can publish, the keys decide. One look at a time, fifty a second if messages keep coming: a flood costs nothing but
that, the last message of a flood is looked into, too, and a pause that follows a resume holds as soon as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from .._redis.broker import Broker
from .._redis.cancellations import Cancellations
from .._redis.replies import QueueFlags
from ..errors import RedisTrouble

MIN_CHECK_INTERVAL_S = 0.02


class QueueWatch:
    """try_to_subscribe() before each renewal, pass_on_pause_and_request_check() with what it found; each message makes
    it look -> on_pause(), on_cancellations().

    It lives in the loop of the broker, which is the heartbeat's.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        on_pause: Callable[[bool], None],
        on_cancellations: Callable[[Cancellations], None],
    ) -> None:
        self._broker = broker
        self._on_pause = on_pause
        self._on_cancellations = on_cancellations
        self._was_paused: bool | None = None  # as it was last passed on
        self._has_cancellations = False
        self._is_hinted = False
        self._check_task: asyncio.Task[None] | None = None

    async def try_to_subscribe(self) -> None:
        """Subscribes, once for each socket, unless it cannot. What is asked behind it misses no message."""
        await self._broker.try_to_subscribe_to_pause_and_cancel_hints(self._request_check)

    def pass_on_pause_and_request_check(self, flags: QueueFlags) -> None:
        """Passes on what a renewal found. Notes about cancelled jobs, or that there are none any more, are read."""
        self._report_pause_or_resume_if_changed(flags)
        if flags.has_cancellations or self._has_cancellations:
            self._request_check()

    def _report_pause_or_resume_if_changed(self, flags: QueueFlags) -> None:
        if flags.is_paused != self._was_paused:  # each call wakes the worker's loop
            self._was_paused = flags.is_paused
            self._on_pause(flags.is_paused)

    async def wait_for_running_check(self) -> None:
        """Returns when the look that is under way has ended, if there is one."""
        if self._check_task is not None:
            await asyncio.wait({self._check_task})

    def _request_check(self) -> None:
        self._is_hinted = True
        if self._check_task is None or self._check_task.done():
            self._check_task = asyncio.ensure_future(self._check_while_hinted())

    async def _check_while_hinted(self) -> None:
        while self._is_hinted:
            self._is_hinted = False
            with suppress(RedisTrouble):  # the heartbeat looks with its next renewal
                await self._read_and_pass_on_pause_and_cancellations()
                await self.try_to_subscribe()  # the queue may have moved to another node of a cluster
            await asyncio.sleep(MIN_CHECK_INTERVAL_S)

    async def _read_and_pass_on_pause_and_cancellations(self) -> None:
        flags = await self._broker.read_queue_flags()
        self._report_pause_or_resume_if_changed(flags)
        if flags.has_cancellations:
            found = await self._broker.read_cancellations_and_remove_outdated()
        elif self._has_cancellations:
            found = Cancellations()
        else:
            return
        self._has_cancellations = bool(found)
        self._on_cancellations(found)
