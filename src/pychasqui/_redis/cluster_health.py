"""What `chasqui doctor` knows of a cluster and of replicas: reads CLUSTER NODES, CLUSTER INFO and INFO of each master.

A master that does not answer is part of what is found. Only a master itself knows how far its replicas are behind, and
which of its slots are half-migrated; which replicas it should have is known to every node.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from .._wire.lenient import read_int
from ..errors import RedisTrouble, ReplyError
from .calls import RedisCalls
from .command_replies import decode_info_text
from .replica_health import KnownReplica, ReplicaHealth, parse_replica_health
from .topology.node_map import Address

DOWN_FLAGS = frozenset({"fail", "fail?", "noaddr"})


@dataclass(frozen=True, slots=True)
class MasterHealth:
    """How a master of a cluster is."""

    address: str
    slots: int
    replica_count: int  # as the node says that was asked first
    answers: bool
    replicas: ReplicaHealth | None  # None if it does not answer, or this user may not ask


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """How a cluster is."""

    is_ok: bool
    slots: int  # that a node has
    nodes: int
    masters: list[MasterHealth]
    open_slots: list[str]  # half-migrated, each with where it is and where it goes


class NodeLine(NamedTuple):
    """A line of CLUSTER NODES."""

    node_id: str
    address: str
    ip_and_port: str
    flags: list[str]
    master_id: str
    is_linked: bool  # to the node that was asked
    slots: list[str]  # ranges, and in brackets those that are half-migrated


async def read_cluster_health(first: RedisCalls) -> ClusterHealth:
    """Asks the node of these calls, then every master at once. Raises ReplyError if this user may not ask."""
    info = parse_info_fields(await first.call("CLUSTER", "INFO"))
    lines = parse_node_lines(decode_info_text(await first.call("CLUSTER", "NODES")))
    answers = await asyncio.gather(*(_ask_master_or_none(each) for each in first.make_calls_to_each_master()))
    by_id = {own.node_id: (own, replication) for own, replication in filter(None, answers)}
    return ClusterHealth(
        is_ok=info.get("cluster_state") == "ok",
        slots=read_int(info.get("cluster_slots_assigned")) or 0,
        nodes=read_int(info.get("cluster_known_nodes")) or 0,
        masters=[
            _make_master_health(line, lines, by_id.get(line.node_id))
            for line in lines
            if "master" in line.flags and _count_slots(line)
        ],
        open_slots=sorted({slot for own, _ in by_id.values() for slot in _describe_migrating_slots(own)}),
    )


def parse_info_fields(reply: object) -> dict[str, str]:
    lines = (line.partition(":") for line in decode_info_text(reply).splitlines())
    return {name: value.strip() for name, _, value in lines if value}


def parse_node_lines(text: str) -> list[NodeLine]:
    """Reads CLUSTER NODES. A node that announces a host name is called by it."""
    found = []
    for words in (line.split() for line in text.splitlines()):
        if len(words) < 8:
            continue
        place, _, names = words[1].partition(",")
        ip_and_port, host = place.partition("@")[0], names.partition(",")[0]
        is_named = host and "=" not in host
        address = f"{host}:{ip_and_port.rpartition(':')[2]}" if is_named else ip_and_port
        is_linked = words[7] == "connected"
        found.append(NodeLine(words[0], address, ip_and_port, words[2].split(","), words[3], is_linked, words[8:]))
    return found


async def _ask_master_or_none(master: RedisCalls) -> tuple[NodeLine, dict[str, str] | None] | None:
    """Returns its own line and its INFO, if this user may ask for that; None if it does not answer."""
    try:
        lines = parse_node_lines(decode_info_text(await master.call("CLUSTER", "NODES")))
        own = next((line for line in lines if "myself" in line.flags), None)
        return None if own is None else (own, await _read_replication_if_allowed(master))
    except ReplyError:
        raise
    except RedisTrouble:
        return None


async def _read_replication_if_allowed(master: RedisCalls) -> dict[str, str] | None:
    try:
        return parse_info_fields(await master.call("INFO", "replication"))
    except ReplyError:
        return None


def _make_master_health(
    line: NodeLine, lines: list[NodeLine], answer: tuple[NodeLine, dict[str, str] | None] | None
) -> MasterHealth:
    known = [_describe_replica(each) for each in lines if each.master_id == line.node_id]
    info = None if answer is None else answer[1]
    replicas = None if info is None else parse_replica_health(info, known)
    return MasterHealth(line.address, _count_slots(line), len(known), answer is not None, replicas)


def _describe_replica(line: NodeLine) -> KnownReplica:
    is_down = DOWN_FLAGS & set(line.flags) or not (line.is_linked or "myself" in line.flags)
    return KnownReplica(
        line.address,
        Address.parse_with_port_or_zero(line.ip_and_port),
        "is down, as other nodes say" if is_down else "",
    )


def _count_slots(line: NodeLine) -> int:
    ranges = (word.partition("-") for word in line.slots if not word.startswith("["))
    return sum((read_int(last) or read_int(first) or 0) - (read_int(first) or 0) + 1 for first, _, last in ranges)


def _describe_migrating_slots(own: NodeLine) -> list[str]:
    """Says which slots of a node are half-migrated, by its own line."""
    found = []
    for word in own.slots:
        slot, sign, other = word.strip("[]").partition("->-" if "->-" in word else "-<-")
        if sign:
            found.append(f"{slot} {'to' if sign == '->-' else 'from'} {other[:8]}")
    return found
