"""How the replicas of a master are: what INFO of the master says, compared with the replicas that others know of.

A master forgets a replica that is away. Sentinels and the nodes of a cluster remember it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .._core.printable import printable
from .._wire.lenient import read_int
from .topology.node_map import Address

MAX_REPLICAS = 64
ONLINE = "online"


class KnownReplica(NamedTuple):
    """A replica that Sentinels or other nodes of a cluster know of."""

    address: str  # how it is called
    at_master: Address  # as the master lists it
    trouble: str = ""  # what those say who know of it, if it is away


@dataclass(frozen=True, slots=True)
class ReplicaHealth:
    """How the replicas of a master are."""

    count: int
    online: int
    behind: int  # the bytes that the slowest of them lacks
    has_minimum: bool  # the master refuses writes while too few of them follow it
    refuses_writes: bool = False  # because none of them does
    away: tuple[tuple[str, str], ...] = ()  # the address of each that does not follow the master, and why


def parse_replica_health(info: Mapping[str, str], known: Sequence[KnownReplica] = ()) -> ReplicaHealth:
    """Reads INFO of a master. A replica that is away is not listed there: `known` says which there should be."""
    listed = [
        _parse_replica_fields(info[f"slave{number}"]) for number in range(MAX_REPLICAS) if f"slave{number}" in info
    ]
    written = read_int(info.get("master_repl_offset")) or 0
    online = [each for each in listed if each.get("state") == ONLINE]
    behind = [written - (read_int(each.get("offset")) or 0) for each in online]
    good = info.get("min_slaves_good_slaves")
    return ReplicaHealth(
        count=max(len(listed), len(known)),
        online=len(online),
        behind=max([0, *behind]),
        has_minimum=good is not None,
        refuses_writes=good == "0" and info.get("role", "master") == "master",
        away=tuple(_find_replicas_away(known, {_read_address(each): each.get("state", "") for each in listed})),
    )


def _find_replicas_away(known: Sequence[KnownReplica], states: Mapping[Address, str]) -> list[tuple[str, str]]:
    """Returns the replicas that are away, by what the master lists.

    One that is online there is not away, although others do not reach it. Where others call replicas by names that the
    master does not use, one is only known to be missing if others say so.
    """
    missing = len(known) - list(states.values()).count(ONLINE)
    if missing <= 0:
        return []
    unlisted = [each for each in known if states.get(each.at_master) != ONLINE]
    is_comparable = len(unlisted) == missing
    return [
        (each.address, why)
        for each in unlisted
        if (why := each.trouble or (_describe_absence(states.get(each.at_master)) if is_comparable else ""))
    ]


def _describe_absence(state: str | None) -> str:
    return "is not connected to the master" if state is None else f"is not in sync yet ({printable(state, 40)})"


def _parse_replica_fields(text: str) -> dict[str, str]:
    """Reads ip=127.0.0.1,port=6380,state=online,offset=42,lag=0."""
    return dict(pair.partition("=")[::2] for pair in text.split(","))


def _read_address(fields: Mapping[str, str]) -> Address:
    return Address(fields.get("ip", ""), read_int(fields.get("port")) or 0)
