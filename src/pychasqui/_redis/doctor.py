"""The conversation with Redis about the server itself and the health of a queue's keys. It changes nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import NamedTuple

from .._core.defaults import GROUP
from .._wire.lenient import read_cut_text, read_int, read_time_ms_or_zero
from ..errors import ReplyError
from .broker import Broker
from .cluster_health import ClusterHealth, parse_info_fields, read_cluster_health
from .command_replies import (
    ConsumerState,
    read_consumer_states,
    read_last_delivered_id_by_group,
    read_members_with_scores,
)
from .endpoint import Location
from .error_actions import ErrorAction, action_for
from .keys import Keys
from .replies import make_methods_raise_reply_error, read_count
from .sentinel_health import SentinelHealth, read_sentinel_health

INFO_SECTIONS = ("server", "memory", "persistence", "stats", "replication", "clients")
KEY_TYPES = {
    "stream": "stream",
    "delayed": "zset",
    "dead": "stream",
    "dead_dropped": "string",
    "repeat": "zset",
    "repeat_paused": "zset",
    "workers": "zset",
    "events": "stream",
}


class ClockReading(NamedTuple):
    """How far the server's clock is ahead of ours in ms, and how exactly that is known."""

    ahead_ms: float
    within_ms: float


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """What there is of a queue."""

    wrong_types: dict[str, tuple[str, str]]  # keys of another type: the one they have, and the one they should have
    groups: list[str]
    entries: int
    dead: int
    dead_dropped: int
    is_paused: bool
    consumers: list[ConsumerState]  # of the usual group
    with_living_lease: set[str]  # names of workers with a lease that is not over
    with_ended_lease: set[str]  # names of workers whose lease is over
    delayed_late_ms: int = 0  # for how long the first delayed job has been due
    repeatable_late_ms: int = 0  # for how long the first repeatable has been due


@make_methods_raise_reply_error
class DoctorBroker:
    """The questions that `chasqui doctor` asks."""

    def __init__(self, broker: Broker, sentinels: Location | None = None) -> None:
        self._broker = broker
        self._sentinels = sentinels  # of the URL

    async def read_info_or_none(self) -> dict[str, str] | None:
        """Returns the fields of INFO; None if this user may not ask."""
        try:
            replies = [await self._broker.call("INFO", section) for section in INFO_SECTIONS]
        except ReplyError:
            return None
        return {name: value for reply in replies for name, value in parse_info_fields(reply).items()}

    def get_server_name_and_version(self) -> str:
        return self._broker.server_name_and_version

    def describe_known_vulnerability(self) -> str:
        return self._broker.describe_known_vulnerability()

    @property
    def is_in_cluster(self) -> bool:
        """Whether the connected server is a node of a cluster."""
        return self._broker.is_in_cluster

    @property
    def has_shard_channels(self) -> bool:
        """Whether messages go by shard channels there."""
        return self._broker.has_shard_channels

    def list_capabilities(self) -> dict[str, bool]:
        return self._broker.list_capabilities()

    @property
    def server_address(self) -> str:
        """Where the connection leads: behind Sentinel the master."""
        return self._broker.server_address

    async def read_cluster_health(self) -> ClusterHealth | None:
        """Asks every master how the cluster is; None if the server is no node of one, or this user may not ask."""
        if not self._broker.is_in_cluster:
            return None
        try:
            return await read_cluster_health(self._broker)
        except ReplyError:
            return None

    async def read_sentinel_health(self) -> SentinelHealth | None:
        """Asks every Sentinel how master and replicas are; None if the URL names none."""
        if self._sentinels is None:
            return None
        return await read_sentinel_health(self._sentinels, self._broker.server_address)

    async def compare_clocks(self) -> ClockReading:
        """Compares the clocks: the server's lies somewhere between our two readings."""
        best = ClockReading(0.0, float("inf"))
        for _ in range(5):
            before = time.time() * 1000
            server_ms = await self._broker.read_server_time_ms()
            after = time.time() * 1000
            reading = ClockReading(server_ms + 0.5 - (before + after) / 2, (after - before) / 2 + 0.5)
            best = min(best, reading, key=lambda one: one.within_ms)
        return best

    async def read_queue_health(self, queue: str) -> QueueHealth:
        keys = Keys(queue)
        broker = self._broker.make_broker_for_queue(keys)
        wanted = {getattr(keys, attribute): kind for attribute, kind in KEY_TYPES.items()}
        found = await asyncio.gather(*(broker.call("TYPE", key) for key in wanted))
        types = {key: read_cut_text(kind) or "" for key, kind in zip(wanted, found, strict=True)}
        wrong = {key: (kind, wanted[key]) for key, kind in types.items() if kind not in ("none", wanted[key])}
        has_stream, has_leases = types[keys.stream] == "stream", types[keys.workers] == "zset"
        leases = await broker.read_lease_ends(GROUP) if has_leases else {}
        now_ms = await broker.read_server_time_ms()
        groups = (
            read_last_delivered_id_by_group(await broker.call("XINFO", "GROUPS", keys.stream)) if has_stream else {}
        )
        consumers = await self._read_consumers_if_group_exists(broker, keys) if GROUP.encode() in groups else []
        has_dead, has_dropped = types[keys.dead] == "stream", types[keys.dead_dropped] == "string"
        dropped = await broker.call("GET", keys.dead_dropped) if has_dropped else None
        return QueueHealth(
            wrong_types=wrong,
            groups=[read_cut_text(name) or "" for name in groups],
            entries=read_count(await broker.call("XLEN", keys.stream)) if has_stream else 0,
            dead=read_count(await broker.call("XLEN", keys.dead)) if has_dead else 0,
            dead_dropped=read_int(dropped) or 0,
            is_paused=await broker.is_paused(),
            consumers=consumers,
            with_living_lease={read_cut_text(name) or "" for name, end in leases.items() if end >= now_ms},
            with_ended_lease={read_cut_text(name) or "" for name, end in leases.items() if end < now_ms},
            delayed_late_ms=await _read_lateness_ms(broker, keys.delayed, now_ms) if keys.delayed not in wrong else 0,
            repeatable_late_ms=await _read_lateness_ms(broker, keys.repeat, now_ms) if keys.repeat not in wrong else 0,
        )

    async def _read_consumers_if_group_exists(self, broker: Broker, keys: Keys) -> list[ConsumerState]:
        try:
            return read_consumer_states(await broker.call("XINFO", "CONSUMERS", keys.stream, GROUP))
        except ReplyError as error:
            if action_for(error) is ErrorAction.NO_GROUP:
                return []
            raise

    async def close(self) -> None:
        await self._broker.close()


async def _read_lateness_ms(broker: Broker, times_key: str, now_ms: int) -> int:
    """Returns for how long the first member of a sorted set of times has been due."""
    first = read_members_with_scores(await broker.call("ZRANGE", times_key, 0, 0, "WITHSCORES"))
    return max(0, now_ms - read_time_ms_or_zero(first[0][1])) if first else 0
