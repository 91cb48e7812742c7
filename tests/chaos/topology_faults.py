"""Every fault of a cluster, of a master behind Sentinels, and of a pair of servers behind one host name.

Each is a coroutine that returns once the fault is over, with what the servers themselves needed: an election, an open
slot, a name that still leads to the former master, a provider that does not know the new password yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Any

from pychasqui import NotReplicated
from pychasqui._redis.topology.node_map import compute_slot_of_key
from pychasqui.errors import ChasquiError
from tests.support.cluster import ClusterServers
from tests.support.named_pair import NamedPair
from tests.support.sentinels import SentinelServers, is_in_sync
from tests.support.server import RedisServer
from tests.support.traffic import Traffic
from tests.support.vault import Vault
from tests.support.waiting import eventually

FROZEN_S = 6.0
OPEN_S = 1.0
LOST_S = 1.5  # for how long a replica is away
LATE_S = 3.0  # the provider learns a password so long after the server
STALE_S = 2.0  # the name leads to the former master for so long
BOUND_S, ELECTION_BOUND_S, NAME_BOUND_S = 0.5, 1.0, 1.0


@dataclass(frozen=True)
class TopologyStage:
    servers: Any  # ClusterServers, SentinelServers or NamedPair
    traffic: Traffic
    vault: Vault | None = None

    @property
    def slot(self) -> int:
        return compute_slot_of_key(f"{{chasqui:{self.traffic.queue.name}}}")


Inflict = Callable[[TopologyStage], Coroutine[Any, Any, float]]


@dataclass(frozen=True)
class TopologyFault:
    inflict: Inflict
    bound_s: float = BOUND_S  # of the gap, beyond what the servers needed
    is_seamless: bool = (
        False  # the former master serves until the other one does: the gap is bounded by `bound_s` alone
    )
    waits_for_replicas: bool = False
    loses_acks: bool = False  # of the former master
    has_provider: bool = False
    may_raise: type[ChasquiError] | None = ChasquiError  # what an add may raise; None: nothing


# Cluster ------------------------------------------------------------------------------------------------------------


async def fail_over(stage: TopologyStage) -> float:
    start = monotonic()
    await asyncio.to_thread(stage.servers.fail_over)
    return monotonic() - start


async def until_another_leads(cluster: ClusterServers, master: RedisServer, slot: int) -> float:
    start = monotonic()
    others = [node for node in cluster.nodes if node is not master]

    def has_taken_over() -> bool:
        return any(cluster.role(node) == "master" and cluster.has_slot(node, slot) for node in others)

    await eventually(has_taken_over, timeout=60)
    return monotonic() - start


async def kill_node(stage: TopologyStage) -> float:
    master = stage.servers.master_of(stage.slot)
    master.kill()
    return await until_another_leads(stage.servers, master, stage.slot)


async def freeze_node(stage: TopologyStage) -> float:
    master = stage.servers.master_of(stage.slot)
    master.pause()
    try:
        elected_s = await until_another_leads(stage.servers, master, stage.slot)
        await asyncio.sleep(max(0.0, FROZEN_S - elected_s))
    finally:
        master.resume()
    return elected_s


async def move_slot(stage: TopologyStage) -> float:
    start = monotonic()
    await asyncio.to_thread(stage.servers.move_slot, stage.slot, stage.servers.nodes[1])
    return monotonic() - start


async def leave_slot_open(stage: TopologyStage) -> float:
    """Half of the keys have moved; later they are moved on."""
    start = monotonic()
    await asyncio.to_thread(stage.servers.open_slot, stage.slot, stage.servers.nodes[1])
    await asyncio.sleep(OPEN_S)
    await asyncio.to_thread(stage.servers.move_slot, stage.slot, stage.servers.nodes[1])
    return monotonic() - start


async def migrate_at_once(stage: TopologyStage) -> float:
    cluster: ClusterServers = stage.servers
    here, there = cluster.nodes[0], cluster.nodes[1]
    if not cluster.migrate_at_once(stage.slot, here, there):
        return await move_slot(stage)  # an older server
    await eventually(lambda: cluster.has_slot(there, stage.slot), timeout=60)
    return 0.0


async def lose_replica_of_node(stage: TopologyStage) -> float:
    """Adds that wait for it raise NotReplicated until it is back; the others notice nothing."""
    replica = next(node for node in stage.servers.nodes if stage.servers.role(node) == "slave")
    await asyncio.to_thread(replica.kill)
    await asyncio.sleep(LOST_S)
    await asyncio.to_thread(replica.start)
    await asyncio.to_thread(stage.servers.wait_until_well)
    await stage.traffic.be_acked()
    return 0.0


# Sentinel -----------------------------------------------------------------------------------------------------------


async def kill_master(stage: TopologyStage) -> float:
    sentinels: SentinelServers = stage.servers
    before, start = sentinels.master, monotonic()
    before.kill()
    await eventually(lambda: sentinels.newest_master is not before, timeout=60)
    return monotonic() - start


async def freeze_master(stage: TopologyStage) -> float:
    sentinels: SentinelServers = stage.servers
    before, start = sentinels.master, monotonic()
    before.pause()
    try:
        await eventually(lambda: sentinels.newest_master is not before, timeout=60)
        elected_s = monotonic() - start
        await asyncio.sleep(max(0.0, FROZEN_S - elected_s))
    finally:
        before.resume()
    return elected_s


async def lose_replica(stage: TopologyStage) -> float:
    """Behind Sentinels; as in a cluster."""
    sentinels: SentinelServers = stage.servers
    master = sentinels.master
    replica = next(server for server in sentinels.servers if server is not master)
    await asyncio.to_thread(replica.kill)
    await asyncio.sleep(LOST_S)
    await asyncio.to_thread(replica.start)
    replica.execute("REPLICAOF", "127.0.0.1", master.port)
    await eventually(lambda: is_in_sync(replica), timeout=60)
    await stage.traffic.be_acked()
    return 0.0


# A host name --------------------------------------------------------------------------------------------------------


async def rename_after_failover(stage: TopologyStage) -> float:
    """The former master lives on as a replica and keeps its connections; the name leads to the new one later."""
    pair: NamedPair = stage.servers
    return await _rename_after(pair.fail_over, pair)


async def rename_after_kill(stage: TopologyStage) -> float:
    pair: NamedPair = stage.servers
    return await _rename_after(pair.kill_master, pair)


async def _rename_after(fault: Callable[[], object], pair: NamedPair) -> float:
    start = monotonic()
    await asyncio.to_thread(fault)
    await asyncio.sleep(STALE_S)
    pair.switch_name()
    return monotonic() - start


# Credentials --------------------------------------------------------------------------------------------------------


async def rotate_password(stage: TopologyStage) -> float:
    """All servers have a new password and end all connections; the provider learns it later."""
    assert stage.vault is not None
    start = monotonic()
    await asyncio.to_thread(stage.vault.rotate, "second")
    await asyncio.to_thread(stage.vault.drop_connections)
    await asyncio.sleep(LATE_S)
    stage.vault.set_password("second")
    return monotonic() - start


_ROTATE = TopologyFault(rotate_password, has_provider=True, may_raise=None)
_CLUSTER = {
    "failover": TopologyFault(fail_over, is_seamless=True),
    "kill": TopologyFault(kill_node, ELECTION_BOUND_S, waits_for_replicas=True, loses_acks=True),
    "freeze": TopologyFault(freeze_node, ELECTION_BOUND_S, waits_for_replicas=True, loses_acks=True),
    "move-slot": TopologyFault(move_slot),
    "open-slot": TopologyFault(leave_slot_open),
    "migrate-slot": TopologyFault(migrate_at_once),
    "lose-replica": TopologyFault(lose_replica_of_node, waits_for_replicas=True, may_raise=NotReplicated),
    "rotate": _ROTATE,
}
FAULTS: dict[str, dict[str, TopologyFault]] = {
    "cluster": _CLUSTER,
    "tls-cluster": _CLUSTER,
    # A planned failover of Sentinels does not wait for replicas either.
    "sentinel": {
        "failover": TopologyFault(fail_over, is_seamless=True, waits_for_replicas=True, loses_acks=True),
        "kill": TopologyFault(kill_master, ELECTION_BOUND_S, waits_for_replicas=True, loses_acks=True),
        "freeze": TopologyFault(freeze_master, ELECTION_BOUND_S, waits_for_replicas=True, loses_acks=True),
        "lose-replica": TopologyFault(lose_replica, waits_for_replicas=True, may_raise=NotReplicated),
        "rotate": _ROTATE,
    },
    "name": {
        "rename-failover": TopologyFault(rename_after_failover, NAME_BOUND_S),
        "rename-kill": TopologyFault(rename_after_kill, NAME_BOUND_S, waits_for_replicas=True, loses_acks=True),
        "rotate": _ROTATE,
    },
}
