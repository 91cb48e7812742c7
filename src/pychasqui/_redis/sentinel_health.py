"""What `chasqui doctor` knows of Sentinels: asks each of them for the master, its replicas and the other Sentinels.

One that does not answer is part of what is found. Of the replicas it asks each by a handshake whether it is a master.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._wire.lenient import read_cut_text, read_first_pairs, read_int
from ..errors import ReplyError
from .connection import Connection
from .endpoint import Location
from .replica_health import KnownReplica
from .topology.node_connections import NodeConnections
from .topology.node_map import Address

MAX_ASKED = 32
DOWN_FLAGS = frozenset({"s_down", "o_down", "disconnected"})


class SeenServer(NamedTuple):
    """A replica or another Sentinel, as one Sentinel sees it."""

    address: Address
    run_id: str
    trouble: str  # "" if it is well


class SentinelAnswer(NamedTuple):
    """What one Sentinel says."""

    run_id: str
    master: Address
    quorum: int
    is_master_down: bool
    others: list[SeenServer]
    replicas: list[SeenServer] | None  # None if its user may not ask


@dataclass(frozen=True, slots=True)
class SentinelHealth:
    """How the Sentinels of a master are, and what they know of its replicas."""

    service: str
    master: str  # where the connection leads; "" if that is not known
    silence: dict[str, str]  # why a Sentinel says nothing of the master
    quorum: int  # how many must agree that a master is down
    answering: list[str]
    unreached: list[str]  # they do not answer us, and others see them
    down: list[str]  # they do not answer, and no other sees them
    strangers: list[str]  # the URL has them; they do not answer, and no other knows them
    sentinels_by_master: dict[str, list[str]]  # who says that this is the master
    see_master_down: list[str]
    replicas: list[KnownReplica] | None  # None if no user may ask
    other_masters: list[str]  # replicas that say that they are masters

    @property
    def sentinel_count(self) -> int:
        return len(self.answering) + len(self.unreached) + len(self.down)

    @property
    def majority(self) -> int:
        """How many Sentinels must vote for a failover: of all that they know, also of those that are gone."""
        return self.sentinel_count // 2 + 1


async def read_sentinel_health(location: Location, master: str) -> SentinelHealth:
    """Asks the Sentinels of a URL, those that they name, and the replicas. `master` is where the connection leads."""
    connected = Address.parse_with_port_or_zero(master)
    sentinels, servers = NodeConnections(location.seeds[0]), NodeConnections(location.node)
    try:
        answers, silence = await _ask_sentinels(location, sentinels)
        replicas = merge_replicas(answers.values(), connected)
        asked = [each.at_master for each in replicas or ()][:MAX_ASKED]
        roles = await servers.ask_nodes_until_enough_answer(asked, _ask_whether_master, enough_answers=len(asked))
    finally:
        await sentinels.close()
        await servers.close()
    unreached, down = _find_unreached_and_down_sentinels(answers)
    strangers = _find_silent_unnamed_addresses(location, answers, {*unreached, *down})
    by_master: dict[str, list[str]] = {}
    for address, each in answers.items():
        by_master.setdefault(str(each.master), []).append(str(address))
    return SentinelHealth(
        service=location.service,
        master=str(connected) if master else "",
        silence={str(address): why for address, why in silence.items()},
        quorum=max((each.quorum for each in answers.values()), default=0),
        answering=list(map(str, _list_one_address_of_each_sentinel(answers))),
        unreached=list(map(str, unreached)),
        down=list(map(str, down)),
        strangers=list(map(str, strangers)),
        sentinels_by_master=by_master,
        see_master_down=[str(at) for at, each in answers.items() if each.is_master_down and each.master == connected],
        replicas=replicas,
        other_masters=[str(address) for address, is_master in roles.found.items() if is_master],
    )


async def _ask_sentinels(
    location: Location, connections: NodeConnections
) -> tuple[dict[Address, SentinelAnswer], dict[Address, str]]:
    """Asks those of the URL, then those that they name and that have not answered under another address.

    Returns what they say, and why the others say nothing.
    """

    async def ask(address: Address, connection: Connection) -> SentinelAnswer | None:
        return await _ask_sentinel(connection, location.service)

    found: dict[Address, SentinelAnswer] = {}
    silence: dict[Address, str] = {}
    to_ask = {Address(seed.host, seed.port) for seed in location.seeds}
    for _ in range(2):
        answers = await connections.ask_nodes_until_enough_answer(sorted(to_ask), ask, enough_answers=len(to_ask))
        found |= {address: each for address, each in answers.found.items() if each is not None}
        silence |= {address: "does not know its name" for address, each in answers.found.items() if each is None}
        silence |= {address: str(error) for address, error in answers.errors.items()}
        known = {each.run_id for each in found.values()}
        others = {each.address for one in found.values() for each in one.others if each.run_id not in known}
        to_ask = set(sorted(others - to_ask)[:MAX_ASKED])
    return found, silence


async def _ask_sentinel(connection: Connection, service: str) -> SentinelAnswer | None:
    """Returns None if the Sentinel does not know the master's name."""
    master = await connection.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
    if not isinstance(master, list) or len(master) != 2:
        return None
    facts, others, run_id, replicas = await asyncio.gather(
        connection.call("SENTINEL", "MASTER", service),
        connection.call("SENTINEL", "SENTINELS", service),
        connection.call("SENTINEL", "MYID"),
        _read_replicas_if_allowed(connection, service),
    )
    of_master = read_first_pairs(facts)
    return SentinelAnswer(
        run_id=read_cut_text(run_id) or "",
        master=Address(read_cut_text(master[0]) or "?", read_int(master[1]) or 0),
        quorum=read_int(of_master.get(b"quorum")) or 0,
        is_master_down=bool(DOWN_FLAGS & _read_flags(of_master)),
        others=_read_servers(others),
        replicas=None if replicas is None else _read_servers(replicas),
    )


async def _read_replicas_if_allowed(connection: Connection, service: str) -> Any:
    try:
        return await connection.call("SENTINEL", "REPLICAS", service)
    except ReplyError:
        return None


async def _ask_whether_master(address: Address, connection: Connection) -> bool:
    socket = await connection.get_or_open_socket(connection.make_deadline())
    return socket.dialect is not None and socket.dialect.is_master


def _read_servers(reply: Any) -> list[SeenServer]:
    """Reads the reply of SENTINEL SENTINELS and SENTINEL REPLICAS."""
    found = []
    for fields in map(read_first_pairs, reply if isinstance(reply, list) else []):
        host, port = read_cut_text(fields.get(b"ip")), read_int(fields.get(b"port"))
        if host and port:
            run_id = read_cut_text(fields.get(b"runid")) or ""
            found.append(SeenServer(Address(host, port), run_id, _describe_trouble(fields)))
    return found


def _describe_trouble(fields: dict[bytes, bytes]) -> str:
    if DOWN_FLAGS & _read_flags(fields):
        return "is down, as the Sentinels say"
    if fields.get(b"master-link-status", b"ok") != b"ok":
        return "has lost its link to the master, as the Sentinels say"
    return ""


def _read_flags(fields: dict[bytes, bytes]) -> set[str]:
    return set((read_cut_text(fields.get(b"flags")) or "").split(","))


def merge_replicas(answers: Iterable[SentinelAnswer], master: Address) -> list[KnownReplica] | None:
    """Returns each replica that a Sentinel knows, and its trouble if most of those that know it say so.

    A Sentinel that is cut off sees all of them down. One that missed a failover lists the present master as a replica:
    `master`, to which the connection leads, is left out. Returns None if no Sentinel lets its user ask.
    """
    lists = [each.replicas for each in answers if each.replicas is not None]
    if not lists:
        return None
    seen: dict[Address, list[str]] = {}
    for each in (each for replicas in lists for each in replicas if each.address != master):
        seen.setdefault(each.address, []).append(each.trouble)
    found = []
    for address, troubles in sorted(seen.items()):
        told = [trouble for trouble in troubles if trouble]
        found.append(KnownReplica(str(address), address, told[0] if 2 * len(told) > len(troubles) else ""))
    return found


def _list_one_address_of_each_sentinel(answers: dict[Address, SentinelAnswer]) -> list[Address]:
    """Returns one address of each Sentinel that answers: the URL may name one by another address than its own."""
    by_id = {each.run_id or str(address): address for address, each in reversed(answers.items())}
    return sorted(by_id.values())


def _find_unreached_and_down_sentinels(answers: dict[Address, SentinelAnswer]) -> tuple[list[Address], list[Address]]:
    """Returns those that others see and those that nobody sees, of all that are named by a Sentinel."""
    living = {each.run_id for each in answers.values()}
    named = [each for one in answers.values() for each in one.others if each.run_id not in living]
    seen = {each.address for each in named if not each.trouble}
    return sorted(seen), sorted({each.address for each in named} - seen)


def _find_silent_unnamed_addresses(
    location: Location, answers: dict[Address, SentinelAnswer], silent: set[Address]
) -> list[Address]:
    """Returns the addresses of the URL that do not answer, and that no Sentinel names.

    The URL may call a Sentinel by a name where the others use its address: such a one is not counted twice.
    """
    seeds = {Address(seed.host, seed.port) for seed in location.seeds}
    called_otherwise = len(silent - seeds)
    return sorted(seeds - answers.keys() - silent)[called_otherwise:]
