"""Decides which of many idle workers wait at the server for the next job.

A server runs every read that waits for a job again whenever one is added: 3 us each. So of many workers only about
MAX_WAITING_READERS wait there, in turns. The others look from time to time, and when a message says that jobs are left:
an idle worker that finds more than it can take publishes that.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

from .._core import clock
from .._redis.broker import Broker
from ..errors import RedisTrouble
from .living_workers import LivingWorkers

MAX_WAITING_READERS = 16
TURN_S = 5.0  # how long a worker waits at the server before it is another one's turn
JOINT_POLL_INTERVAL_S = 0.02  # between two looks of any of the others, unless that takes longer than LONGEST_REST_S
SHORTEST_REST_S = 0.25
LONGEST_REST_S = 5.0  # on average, as the shortest: each pause is up to half longer or shorter
MESSAGES_APART_S = 0.5


class ReadTurns:
    """choose_block_ms() before each read; draw_turn_or_choose_pause_s() after a read that brought nothing."""

    def __init__(
        self,
        living_workers: LivingWorkers,
        broker: Broker,
        group: str,
        block_ms: int,
        *,
        on_backlog: Callable[[], None],
    ) -> None:
        self._living_workers = living_workers
        self._on_backlog = on_backlog  # ends a pause
        self._broker = broker  # not the one that a read that waits holds up
        self._group = group
        self._block_ms = block_ms
        self._waits_until = float("-inf")  # while it is this worker's turn
        self._drawn_at = clock.monotonic()
        self._last_message_at = float("-inf")

    @property
    def must_be_taken(self) -> bool:
        """Whether more workers live than may wait at the server at a time."""
        return self._living_workers.count > MAX_WAITING_READERS

    def choose_block_ms(self) -> int | None:
        """Returns how long the next read waits at the server; None: it does not."""
        if not self.must_be_taken:
            return self._block_ms
        now = clock.monotonic()
        if now < self._waits_until:
            return min(self._block_ms, int(1000 * (self._waits_until - now)) + 1)
        return None

    async def draw_turn_or_choose_pause_s(self) -> float:
        """Returns how long to pause before the next read; 0 if that read waits at the server.

        A worker whose turn is over draws whether its next one begins. The chance lets as many begin as end if
        MAX_WAITING_READERS wait.
        """
        now, others = clock.monotonic(), self._living_workers.count - MAX_WAITING_READERS
        if others <= 0 or now < self._waits_until:
            return 0.0
        drawn_for_s, self._drawn_at = min(now - self._drawn_at, LONGEST_REST_S), now
        if random.random() < MAX_WAITING_READERS / others * drawn_for_s / TURN_S:
            self._waits_until = now + TURN_S
            return 0.0
        with suppress(RedisTrouble):  # without messages it looks from time to time
            await self._broker.try_to_subscribe_to_backlog_hints(self._note_backlog_hint_and_wake)
        pause_s = min(max(JOINT_POLL_INTERVAL_S * others, SHORTEST_REST_S), LONGEST_REST_S)
        return pause_s * random.uniform(0.5, 1.5)

    def _note_backlog_hint_and_wake(self) -> None:
        """A message says that jobs are left."""
        self._last_message_at = clock.monotonic()
        self._on_backlog()

    async def publish_backlog_if_any_and_due(self) -> None:
        """Publishes that jobs are left, if there are some and no worker has done so a moment ago."""
        if clock.monotonic() < self._last_message_at + MESSAGES_APART_S:
            return
        self._last_message_at = clock.monotonic()
        with suppress(RedisTrouble):  # the others find them a little later
            if await self._broker.may_have_unread_entries(self._group):
                self._broker.publish_backlog_hint()
