"""Queues: finds the queues of a server, and says how each of them is, over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ._core.checks import check_queue_name
from ._core.defaults import GROUP
from ._redis.credentials import CredentialProvider
from ._redis.queues import FoundNames, OfficialFacts, QueuesBroker
from ._redis.server_session import ServerSession
from ._wire.lenient import read_entry_id
from .errors import ReplyError
from .inspector import Inspector, WorkerInfo

__all__ = ["FoundNames", "OfficialFacts", "QueueOverview", "Queues"]

SEARCH_S = 0.15
RATE_WINDOW_MS = 60_000
EVENTS_READ = 5000  # of all queues together, for their rates
MAX_EVENTS, MIN_EVENTS = 1000, 100  # of one queue


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """How a queue is. One that cannot be read has an `error`, and None in all other fields: it need not be empty."""

    name: str
    waiting: int | None = None
    running: int | None = None
    delayed: int | None = None
    dead: int | None = None
    repeatables: int | None = None
    rate: float | None = None  # jobs done a second, during the last minute or what the newest events cover
    oldest_age_ms: int | None = None  # for how long the oldest job that is not done has been in the stream
    workers: int | None = None  # consumers that live, official ones included
    is_paused: bool | None = None
    error: str | None = None  # why it cannot be read


class Queues(ServerSession):
    """`async with Queues(redis_url) as queues:` looks at all queues of a server.

    redis_url             as of Queue
    timeout_s             a call answers or raises within this time
    credential_provider   as of Queue
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        tls: bool = False,
        timeout_s: float = 10.0,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        super().__init__(
            redis_url,
            client_name="chasqui-queues",
            timeout_s=timeout_s,
            tls=tls,
            credential_provider=credential_provider,
        )
        self._broker = QueuesBroker(self._server)

    async def find_names(self, *, within_s: float = SEARCH_S) -> FoundNames:
        """Finds the names of all queues that hold a job or a repeatable, or have held one.

        They come from the registry that adding processes and workers keep, and from a look through the keys of the
        server by SCAN, for `within_s`. `is_complete` says whether that look came to its end; if not, queues may be
        missing that only official processes use.
        """
        return await self._broker.find_names(within_s)

    async def overview(self, names: Sequence[str]) -> list[QueueOverview]:
        """Returns how each of the queues is. One that cannot be read has an `error`, and None for each count."""
        now_ms = await self._broker.read_server_time_ms()
        events = max(MIN_EVENTS, min(MAX_EVENTS, EVENTS_READ // max(1, len(names))))
        return await asyncio.gather(
            *(self._read_overview_or_error(check_queue_name(name), now_ms, events) for name in names)
        )

    async def _read_overview_or_error(self, name: str, now_ms: int, max_events: int) -> QueueOverview:
        broker = self._broker.make_inspector(name)
        since_ms = now_ms - RATE_WINDOW_MS
        try:
            counts, is_paused, oldest, workers, completed = await asyncio.gather(
                broker.read_counts(),
                broker.is_paused(),
                broker.find_oldest_entry_id_and_server_time(),
                broker.count_living_consumers_of_group(),
                self._broker.count_completed_events(name, since_ms, max_events),
            )
        except ReplyError as error:
            return QueueOverview(name, error=str(error))
        window_ms = max(1, now_ms - (since_ms if completed.from_ms is None else completed.from_ms))
        return QueueOverview(
            name,
            counts.waiting,
            counts.active,
            counts.delayed,
            counts.dead,
            counts.repeatables,
            rate=1000 * completed.number / window_ms,
            oldest_age_ms=None if oldest is None else max(0, oldest[1] - read_entry_id(oldest[0])[0]),
            workers=workers,
            is_paused=is_paused,
        )

    async def official_facts(self, name: str, *, group: str = GROUP) -> OfficialFacts:
        """Returns what the official `chasqui inspect` shows of a queue."""
        return await self._broker.read_official_facts(check_queue_name(name), group)

    async def lag_ms(self, name: str) -> int:
        """Returns how long the oldest job that no worker has been given has waited, by the server's clock; 0 if none
        waits."""
        broker = self._broker.make_inspector(check_queue_name(name))
        now_ms, first = await asyncio.gather(self._broker.read_server_time_ms(), broker.read_waiting_page("", 1))
        return max(0, now_ms - read_entry_id(first[0][0])[0]) if first else 0

    async def workers(self, name: str) -> list[WorkerInfo]:
        """Lists the living workers of a queue, as Queue.workers() does."""
        broker = self._broker.make_inspector(check_queue_name(name))
        return await Inspector(lambda: broker).workers()
