"""The conversation with Redis about all queues of a server, over one connection.

What is asked about many queues travels together. Each answer about one queue is bounded. Every call can be sent again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from .._core.checks import is_valid_queue_name
from .._core.defaults import GROUP
from .._core.limits import MAX_REGISTERED
from .._wire.entry import decode_name_or_empty
from .._wire.lenient import read_time_ms_or_zero
from ..errors import ReplyError
from .broker import Broker
from .calls import RedisCalls
from .command_replies import read_members_with_scores, read_scan_page
from .inspector import InspectorBroker
from .keys import REGISTRY, Keys
from .replies import make_methods_raise_reply_error, read_bytes_list, read_count, read_range

# The keys that a queue has if it has any job: stream, delayed, dlq, repeat. Results and the like do not match, of which
# there may be millions.
PATTERN = "{chasqui:*}:[sdr][tel][rlqp]*"
KEYS_A_CALL = 5000
NAMES_A_CALL = 1000  # of the registry
_QUEUE = re.compile(rb"\{chasqui:([^}]+)\}:(?:stream|delayed|dlq|repeat)")


class FoundNames(NamedTuple):
    """The names of queues, and whether all keys of the server were looked at in time."""

    names: list[str]
    is_complete: bool


class CompletedCount(NamedTuple):
    """How many events completed were found, and since when they were looked for."""

    number: int
    from_ms: int | None  # None: since the time that was asked for


@dataclass(frozen=True, slots=True)
class OfficialFacts:
    """What the official `chasqui inspect` shows of a queue."""

    stream_depth: int
    pending: int | None  # None if the consumer group does not exist
    dlq_depth: int
    delayed_depth: int
    oldest_delayed_lag_ms: int | None  # for how long the first delayed job has been due; None if none is delayed
    repeatable_count: int


@make_methods_raise_reply_error
class QueuesBroker:
    """Finds the queues of a server by their registry and by SCAN, and asks about each."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def find_names(self, within_s: float) -> FoundNames:
        """Returns the queues of the registry, and those that SCAN finds within that time among the names of all keys.

        The registry alone is not enough: official processes write none, and some users may not. A user who may not look
        through all keys gets the names of the registry.
        """
        known = await self._try_to_read_registered_names()
        try:
            found = await self._scan_for_queue_names(within_s)
        except ReplyError as error:
            if error.code != "NOPERM" or not known:
                raise
            found = FoundNames([], is_complete=False)
        others = await self._ask_which_queues_exist(known - set(found.names))
        return FoundNames(sorted({*found.names, *others}), found.is_complete)

    async def _try_to_read_registered_names(self) -> set[str]:
        """Returns the names in the registry; those before a refusal, so none if this user may not read it."""
        names = set[str]()
        for start in range(0, MAX_REGISTERED, NAMES_A_CALL):
            try:
                calls = self._broker.make_calls_to_node_of_key(REGISTRY)
                page = read_bytes_list(await calls.call("ZRANGE", REGISTRY, start, start + NAMES_A_CALL - 1, "REV"))
            except ReplyError:
                return names
            names.update(_filter_valid_names(page))
            if len(page) < NAMES_A_CALL:
                break
        return names

    async def _ask_which_queues_exist(self, names: set[str]) -> set[str]:
        """Returns the queues that have a key that this user may read. The registry also has queues that are gone."""

        async def exists(name: str) -> bool:
            keys = Keys(name)
            try:
                words = ("EXISTS", keys.stream, keys.delayed, keys.dead, keys.repeat)
                return bool(await self._broker.make_broker_for_queue(keys).call(*words))
            except ReplyError:
                return False

        ordered = sorted(names)
        answers = await asyncio.gather(*map(exists, ordered))
        return {name for name, is_there in zip(ordered, answers, strict=True) if is_there}

    async def _scan_for_queue_names(self, within_s: float) -> FoundNames:
        """Looks through the names of all keys by SCAN, which holds no other client up, for that long."""
        give_up_at = monotonic() + within_s
        found = await asyncio.gather(
            *(_scan_node_for_names(calls, give_up_at) for calls in self._broker.make_calls_to_each_master())
        )
        names = {name for each in found for name in each.names}
        return FoundNames(sorted(names), all(each.is_complete for each in found))

    async def read_server_time_ms(self) -> int:
        return await self._broker.read_server_time_ms()

    async def read_official_facts(self, queue: str, group: str) -> OfficialFacts:
        """Asks for the facts in one write, as the official command does."""
        keys = Keys(queue)
        broker = self._broker.make_broker_for_queue(keys)
        stream, pending, dead, delayed, first, repeat, now_ms = await asyncio.gather(
            broker.call("XLEN", keys.stream),
            InspectorBroker(broker, keys, group).count_pending_if_group_exists(),
            broker.call("XLEN", keys.dead),
            broker.call("ZCARD", keys.delayed),
            broker.call("ZRANGE", keys.delayed, 0, 0, "WITHSCORES"),
            broker.call("ZCARD", keys.repeat),
            broker.read_server_time_ms(),
        )
        due = read_members_with_scores(first)
        return OfficialFacts(
            stream_depth=read_count(stream),
            pending=pending,
            dlq_depth=read_count(dead),
            delayed_depth=read_count(delayed),
            oldest_delayed_lag_ms=max(0, now_ms - read_time_ms_or_zero(due[0][1])) if due else None,
            repeatable_count=read_count(repeat),
        )

    async def count_completed_events(self, queue: str, since_ms: int, max_events_read: int) -> CompletedCount:
        """Counts the events completed since then; if there are more than `max_events_read`, among the newest ones."""
        keys = Keys(queue)
        calls = self._broker.make_broker_for_queue(keys)
        newest = read_range(await calls.call("XREVRANGE", keys.events, "+", max(0, since_ms), "COUNT", max_events_read))
        completed = sum(b"completed" in (entry[1] or ())[:2] for entry in newest)
        from_ms = int(newest[-1][0].partition(b"-")[0]) if len(newest) == max_events_read else None
        return CompletedCount(completed, from_ms)

    def make_inspector(self, queue: str) -> InspectorBroker:
        """Returns the conversation about one queue, over the same connection."""
        keys = Keys(queue)
        return InspectorBroker(self._broker.make_broker_for_queue(keys), keys, GROUP)

    async def close(self) -> None:
        await self._broker.close()


async def _scan_node_for_names(calls: RedisCalls, give_up_at: float) -> FoundNames:
    names, cursor = set[str](), b"0"
    while True:
        cursor, keys = read_scan_page(await calls.call("SCAN", cursor, "MATCH", PATTERN, "COUNT", KEYS_A_CALL))
        found = (_QUEUE.fullmatch(key) for key in keys)
        names.update(_filter_valid_names(one[1] for one in found if one is not None))
        if cursor == b"0" or monotonic() > give_up_at:
            return FoundNames(sorted(names), cursor == b"0")


def _filter_valid_names(raw_names: Iterable[bytes]) -> Iterator[str]:
    """Returns the names that a queue can have: other programs may have written the others."""
    names = map(decode_name_or_empty, raw_names)
    return filter(is_valid_queue_name, names)
