"""Rounds of faults of a cluster, or of a master behind Sentinels: `python -m tests.chaos --topology cluster`.

Each round has servers of its own, a queue that adds all the time and a worker that runs. A round is good if no acked
add is lost, no job runs whose add said that it was not added, none runs twice unless its ack can have been lost with a
master, and jobs flow again within the bound: the servers' own election and a second, or half a second where none is
needed. The bounds are for a machine that is not busy: a round also says for how long this process did not get the CPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Any

from pychasqui._redis.topology.node_map import slot_of
from tests.support.cluster import ClusterServers
from tests.support.sentinels import SentinelServers
from tests.support.server import RedisServer
from tests.support.traffic import Traffic
from tests.support.waiting import eventually

REPLICAS = 2  # of a master behind Sentinels; the first node of a cluster has one
FROZEN_S = 6.0
OPEN_S = 1.0
ADDERS = 4
WAIT_S = 0.4  # for replicas: behind a failover there are fewer for a while, and adds raise NotReplicated
BOUND_S, ELECTION_BOUND_S = 0.5, 1.0


@dataclass
class Outcome:
    """How a round ended. `servers_s` is what the servers needed themselves: an election, an open slot."""

    fault: str
    servers_s: float
    gap_s: float
    added: int
    lost: int
    twice: int
    without_reason: list[str]  # of jobs that ran twice: when they were added and ran, in s since the next master led
    elections: int
    wrongly_refused: int
    refused: int
    stalled_s: float  # the longest time for which this process did not run

    @property
    def bound_s(self) -> float:
        if self.fault == "failover":
            return BOUND_S  # the former master serves until the other one does
        return self.servers_s + (ELECTION_BOUND_S if self.fault in WITH_ELECTION else BOUND_S)

    @property
    def problems(self) -> list[str]:
        bound_s = self.bound_s
        if self.elections > 1:
            return ["the servers have elected more than once"]
        found = [
            (self.lost > 0, f"{self.lost} acked adds are lost"),
            (self.wrongly_refused > 0, f"{self.wrongly_refused} jobs ran that were not added"),
            (bool(self.without_reason), f"jobs ran twice without a reason: {', '.join(self.without_reason)}"),
            (self.gap_s > bound_s, f"nothing flowed for {self.gap_s:.2f} s, the bound is {bound_s:.2f} s"),
        ]
        return [text for is_wrong, text in found if is_wrong]

    def __str__(self) -> str:
        return (
            f"{self.fault:14} gap {self.gap_s:5.2f} s, servers {self.servers_s:5.2f} s, {self.added} added, "
            f"{self.lost} lost, {self.twice} twice, {self.refused} refused, {self.wrongly_refused} of them ran, "
            f"stalled {self.stalled_s:.2f} s"
            f"{'' if not self.problems else '  BAD: ' + '; '.join(self.problems)}"
        )


Inflict = Callable[[Any, str], Coroutine[Any, Any, float]]  # returns what the servers needed


# Cluster ------------------------------------------------------------------------------------------------------------


def _slot(queue_name: str) -> int:
    return slot_of(f"{{chasqui:{queue_name}}}")


async def _fail_over(servers: ClusterServers | SentinelServers, queue_name: str) -> float:
    start = monotonic()
    await asyncio.to_thread(servers.fail_over)
    return monotonic() - start


async def _until_another_leads(servers: ClusterServers, master: RedisServer, slot: int) -> float:
    start = monotonic()
    others = [node for node in servers.nodes if node is not master]

    def has_taken_over() -> bool:
        return any(servers.role(node) == "master" and servers.has_slot(node, slot) for node in others)

    await eventually(has_taken_over, timeout=60)
    return monotonic() - start


async def _kill_node(cluster: ClusterServers, queue_name: str) -> float:
    master = cluster.master_of(_slot(queue_name))
    master.kill()
    return await _until_another_leads(cluster, master, _slot(queue_name))


async def _freeze_node(cluster: ClusterServers, queue_name: str) -> float:
    master = cluster.master_of(_slot(queue_name))
    master.pause()
    try:
        elected_s = await _until_another_leads(cluster, master, _slot(queue_name))
        await asyncio.sleep(max(0.0, FROZEN_S - elected_s))
    finally:
        master.resume()
    return elected_s


async def _move_slot(cluster: ClusterServers, queue_name: str) -> float:
    start = monotonic()
    await asyncio.to_thread(cluster.move_slot, _slot(queue_name), cluster.nodes[1])
    return monotonic() - start


async def _leave_slot_open(cluster: ClusterServers, queue_name: str) -> float:
    """Half of the keys have moved; later they are moved on."""
    start = monotonic()
    await asyncio.to_thread(cluster.open_slot, _slot(queue_name), cluster.nodes[1])
    await asyncio.sleep(OPEN_S)
    await asyncio.to_thread(cluster.move_slot, _slot(queue_name), cluster.nodes[1])
    return monotonic() - start


async def _migrate_at_once(cluster: ClusterServers, queue_name: str) -> float:
    here, there = cluster.nodes[0], cluster.nodes[1]
    if not cluster.migrate_at_once(_slot(queue_name), here, there):
        return await _move_slot(cluster, queue_name)  # an older server
    await eventually(lambda: cluster.has_slot(there, _slot(queue_name)), timeout=60)
    return 0.0


# Sentinel -----------------------------------------------------------------------------------------------------------


async def _kill_master(sentinels: SentinelServers, queue_name: str) -> float:
    before, start = sentinels.master, monotonic()
    before.kill()
    await eventually(lambda: sentinels.newest_master is not before, timeout=60)
    return monotonic() - start


async def _freeze_master(sentinels: SentinelServers, queue_name: str) -> float:
    before, start = sentinels.master, monotonic()
    before.pause()
    try:
        await eventually(lambda: sentinels.newest_master is not before, timeout=60)
        elected_s = monotonic() - start
        await asyncio.sleep(max(0.0, FROZEN_S - elected_s))
    finally:
        before.resume()
    return elected_s


FAULTS: dict[str, dict[str, Inflict]] = {
    "cluster": {
        "failover": _fail_over,
        "kill": _kill_node,
        "freeze": _freeze_node,
        "move-slot": _move_slot,
        "open-slot": _leave_slot_open,
        "migrate-slot": _migrate_at_once,
    },
    "sentinel": {"failover": _fail_over, "kill": _kill_master, "freeze": _freeze_master},
}
WITH_ELECTION = ("kill", "freeze")


async def run_topology_round(topology: str, fault: str, *, adders: int = ADDERS) -> Outcome:
    """Adds wait for all replicas where a master is lost with what has not reached them: in an election, and behind
    Sentinels, whose planned failover does not wait for replicas either."""
    waiting: dict[str, Any] = {"timeout_s": WAIT_S}
    if topology == "cluster":
        with ClusterServers() as cluster:
            options = {**waiting, "wait_replicas": 1} if fault in WITH_ELECTION else {}
            traffic = Traffic(cluster.queue_name(0), cluster.url, adders=adders, **options)
            return await _run(cluster, traffic, topology, fault)
    with SentinelServers(replicas=REPLICAS) as sentinels:
        traffic = Traffic("chaos", sentinels.url, adders=adders, **waiting, wait_replicas=REPLICAS)
        return await _run(sentinels, traffic, topology, fault)


async def _run(servers: Any, traffic: Traffic, topology: str, fault: str) -> Outcome:
    """A job can run twice if it was added before the next master led: its delivery or its ack may not have reached that
    one. The former master takes jobs until the connections have followed."""
    loses_acks = topology == "sentinel" or fault in WITH_ELECTION
    async with traffic:
        await asyncio.sleep(1)
        start, epoch = monotonic(), servers.epoch
        servers_s = await FAULTS[topology][fault](servers, traffic.queue.name)
        await traffic.flow()
        await asyncio.sleep(2)
        gap_s, stalled_s = traffic.gap_s(start), traffic.stalled_s(start)
        await traffic.stop_adding()
        await traffic.try_to_end(20)
        elections = servers.epoch - epoch
    led_at = start + servers_s if loses_acks else float("-inf")
    return Outcome(
        fault=fault,
        servers_s=servers_s,
        gap_s=gap_s,
        added=len(traffic.added),
        lost=len(traffic.lost),
        twice=len(traffic.twice),
        without_reason=[
            f"added at {traffic.answered_at[job] - led_at:.2f}, ran at "
            + " and ".join(f"{at - led_at:.2f}" for at in traffic.runs_at[job])
            for job in traffic.twice
            if traffic.answered_at[job] > led_at + BOUND_S
        ],
        elections=elections,
        wrongly_refused=len(traffic.wrongly_refused),
        refused=len(traffic.refused),
        stalled_s=stalled_s,
    )
