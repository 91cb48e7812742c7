"""The conversation with Redis about all queues of a server, over one connection.

What is asked about many queues travels together. Each answer about one queue is bounded. Every call can be sent again.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from .._core.defaults import GROUP
from .._wire.lenient import read_text
from .broker import Broker
from .command_replies import read_scan, read_scores
from .inspector import InspectorBroker
from .keys import Keys
from .replies import read_count, read_range, reads_replies

# The keys that a queue has if it has any job: stream, delayed, dlq, repeat. Results and the like do not match, of which
# there may be millions.
PATTERN = "{chasqui:*}:[sdr][tel][rlqp]*"
KEYS_A_CALL = 5000
_QUEUE = re.compile(rb"\{chasqui:([^}]+)\}:(?:stream|delayed|dlq|repeat)")


class FoundNames(NamedTuple):
    """The names of queues, and whether all keys of the server were looked at in time."""

    names: list[str]
    is_complete: bool


@dataclass(frozen=True, slots=True)
class OfficialFacts:
    """What the official `chasqui inspect` shows of a queue."""

    stream_depth: int
    pending: int | None  # None if the consumer group does not exist
    dlq_depth: int
    delayed_depth: int
    oldest_delayed_lag_ms: int | None  # for how long the first delayed job has been due; None if none is delayed
    repeatable_count: int


@reads_replies
class QueuesBroker:
    """Finds the queues of a server by SCAN, which holds nobody up."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._call = broker.call

    async def find_names(self, within_s: float) -> FoundNames:
        """Looks through the names of all keys, for that long."""
        names, cursor, give_up_at = set[str](), b"0", monotonic() + within_s
        while True:
            cursor, keys = read_scan(await self._call("SCAN", cursor, "MATCH", PATTERN, "COUNT", KEYS_A_CALL))
            found = (_QUEUE.fullmatch(key) for key in keys)
            names.update(read_text(one[1]) or "" for one in found if one is not None)
            if cursor == b"0" or monotonic() > give_up_at:
                return FoundNames(sorted(names), cursor == b"0")

    async def now_ms(self) -> int:
        return await self._broker.now_ms()

    async def official_facts(self, queue: str, group: str) -> OfficialFacts:
        """In one write, as the official command asks for them."""
        keys = Keys(queue)
        stream, pending, dead, delayed, first, repeat, now_ms = await asyncio.gather(
            self._call("XLEN", keys.stream),
            InspectorBroker(self._broker, keys, group).pending_count(),
            self._call("XLEN", keys.dead),
            self._call("ZCARD", keys.delayed),
            self._call("ZRANGE", keys.delayed, 0, 0, "WITHSCORES"),
            self._call("ZCARD", keys.repeat),
            self._broker.now_ms(),
        )
        due = read_scores(first)
        return OfficialFacts(
            stream_depth=read_count(stream),
            pending=pending,
            dlq_depth=read_count(dead),
            delayed_depth=read_count(delayed),
            oldest_delayed_lag_ms=max(0, now_ms - int(min(due[0][1], now_ms))) if due else None,
            repeatable_count=read_count(repeat),
        )

    async def completed_since(self, queue: str, since_ms: int, count: int) -> tuple[int, int | None]:
        """Counts the events completed among the newest events since then; and the time of the oldest that was read."""
        key = Keys(queue).events
        newest = read_range(await self._call("XREVRANGE", key, "+", max(0, since_ms), "COUNT", count))
        completed = sum(b"completed" in (entry[1] or ())[:2] for entry in newest)
        oldest_ms = int(newest[-1][0].partition(b"-")[0]) if len(newest) == count else None
        return completed, oldest_ms

    def inspector(self, queue: str) -> InspectorBroker:
        """The conversation about one queue, over the same connection."""
        keys = Keys(queue)
        return InspectorBroker(self._broker.about(keys), keys, GROUP)

    async def close(self) -> None:
        await self._broker.close()
