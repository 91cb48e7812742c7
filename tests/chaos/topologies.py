"""Rounds of faults of a cluster, or of a master behind Sentinels or behind a host name: `make chaos` with --topology.

Each round has servers of its own, a queue that adds all the time and a worker that runs. A round is good if no acked
add is lost, no job runs whose add said that it was not added, none runs twice unless its ack can have been lost with a
master, adds raise nothing that the fault is no reason for, and jobs flow again within the bound: what the servers need
themselves, and a second or half of one. The bounds are for a machine that is not busy: a round also says for how long
this process did not get the CPU.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Any

from tests.chaos.topology_faults import BOUND_S, FAULTS, TopologyFault, TopologyStage
from tests.support.cluster import ClusterServers
from tests.support.named_pair import NamedPair
from tests.support.sentinels import SentinelServers
from tests.support.tls_cluster import TlsClusterServers
from tests.support.traffic import Traffic
from tests.support.vault import Vault

REPLICAS = {"cluster": 1, "tls-cluster": 1, "sentinel": 2, "name": 1}  # of the queue's master
SERVERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "cluster": ClusterServers,
    "tls-cluster": TlsClusterServers,
    "sentinel": lambda: SentinelServers(replicas=REPLICAS["sentinel"]),
    "name": NamedPair,
}
ADDERS = 4
TIMEOUT_S = 20.0  # of an add
WAIT_S = 0.4  # for replicas: behind a failover there are fewer for a while, and adds raise NotReplicated
QUIET_S, AFTER_S = 1.0, 2.0  # before the fault and behind it
ACKED_S = 1.0  # so long after its run the ack of a job has reached the replicas


@dataclass
class Outcome:
    """How a round ended. `servers_s` is what the servers needed themselves: an election, an open slot."""

    topology: str
    fault: str
    servers_s: float
    gap_s: float
    added: int
    lost: int
    twice: int
    without_reason: list[str]  # of jobs that ran twice: when they were added and ran, in s since the next master led
    elections: int
    wrongly_refused: int
    refused: Counter[str]  # adds, by the type of their error
    unexpected: list[str]  # errors that the fault is no reason for
    slowest_add_s: float
    adds_a_second: float  # before the fault, refused ones included
    stalled_s: float  # the longest time for which this process did not run

    @property
    def bound_s(self) -> float:
        fault = FAULTS[self.topology][self.fault]
        return fault.bound_s + (0.0 if fault.is_seamless else self.servers_s)

    @property
    def broken_promises(self) -> list[str]:
        """What no machine is too busy for."""
        found = [
            (self.lost > 0, f"{self.lost} acked adds are lost"),
            (self.wrongly_refused > 0, f"{self.wrongly_refused} jobs ran that were not added"),
            (bool(self.without_reason), f"jobs ran twice without a reason: {', '.join(self.without_reason)}"),
            (bool(self.unexpected), f"adds raised {'; '.join(self.unexpected)}"),
        ]
        return [text for is_wrong, text in found if is_wrong]

    @property
    def problems(self) -> list[str]:
        if self.elections > 1:  # the bound is that of one; a second loses more acks, and no acked add
            return ["the servers have elected more than once", *self.broken_promises]
        timeout_s = WAIT_S if FAULTS[self.topology][self.fault].waits_for_replicas else TIMEOUT_S
        late = [
            (self.gap_s > self.bound_s, f"nothing flowed for {self.gap_s:.2f} s, the bound is {self.bound_s:.2f} s"),
            (self.slowest_add_s > timeout_s + BOUND_S, f"an add with {timeout_s} s took {self.slowest_add_s:.2f} s"),
        ]
        return self.broken_promises + [text for is_late, text in late if is_late]

    def __str__(self) -> str:
        return (
            f"{self.topology} {self.fault:15} gap {self.gap_s:5.2f} s, servers {self.servers_s:5.2f} s, "
            f"{self.added} added, {self.lost} lost, {self.twice} twice, {dict(self.refused) or 'none'} refused, "
            f"{self.wrongly_refused} of them ran, slowest add {self.slowest_add_s:.2f} s, "
            f"{self.adds_a_second:.0f} adds a second before, stalled {self.stalled_s:.2f} s"
            f"{'' if not self.problems else '  BAD: ' + '; '.join(self.problems)}"
        )


async def run_topology_round(
    topology: str, fault: str, *, adders: int = ADDERS, quiet_s: float = QUIET_S, after_s: float = AFTER_S
) -> Outcome:
    """Adds wait for all replicas where a master is lost with what has not reached them."""
    plan = FAULTS[topology][fault]
    with ExitStack() as stack:
        servers = await asyncio.to_thread(stack.enter_context, SERVERS[topology]())
        stage = _make_stage(topology, plan, servers, adders)
        traffic = stage.traffic
        async with traffic:
            adds_a_second = await _count_adds_a_second(traffic, quiet_s)
            start, epoch = monotonic(), servers.epoch
            servers_s = await plan.inflict(stage)
            await traffic.flow()
            await asyncio.sleep(after_s)
            gap_s, stalled_s = traffic.gap_s(start), traffic.stalled_s(start)
            await traffic.stop_adding()
            await traffic.try_to_end(20)
            elections = servers.epoch - epoch
        return Outcome(
            topology=topology,
            fault=fault,
            servers_s=servers_s,
            gap_s=gap_s,
            added=len(traffic.added),
            lost=len(traffic.lost),
            twice=len(traffic.twice),
            without_reason=find_runs_without_reason(traffic, plan, start, start + servers_s),
            elections=elections,
            wrongly_refused=len(traffic.wrongly_refused),
            refused=Counter(type(error).__name__ for error in traffic.refused.values()),
            unexpected=_find_unexpected(traffic, plan),
            slowest_add_s=traffic.slowest_add_s,
            adds_a_second=adds_a_second,
            stalled_s=stalled_s,
        )


def _make_stage(topology: str, plan: TopologyFault, servers: Any, adders: int) -> TopologyStage:
    is_cluster = isinstance(servers, ClusterServers)
    vault = Vault(*(servers.nodes if is_cluster else servers.servers)) if plan.has_provider else None
    options: dict[str, Any] = {"timeout_s": TIMEOUT_S, "credential_provider": vault.provide if vault else None}
    if plan.waits_for_replicas:
        options |= {"timeout_s": WAIT_S, "wait_replicas": REPLICAS[topology]}
    name = servers.queue_name(0) if is_cluster else "chaos"
    return TopologyStage(servers, Traffic(name, servers.url, adders=adders, **options), vault)


async def _count_adds_a_second(traffic: Traffic, within_s: float) -> float:
    """Waits for that long, in which no fault is."""
    before, start = len(traffic.answered_at), monotonic()
    await asyncio.sleep(within_s)
    return (len(traffic.answered_at) - before) / (monotonic() - start)


def find_runs_without_reason(traffic: Traffic, plan: TopologyFault, start: float, led_at: float) -> list[str]:
    """A job has a reason to run twice if its delivery or its ack may not have reached the next master: it first ran
    shortly before the fault or later, and was added before that one led. The former master takes jobs until the
    connections have followed."""
    return [
        f"added at {traffic.answered_at[job] - led_at:.2f}, ran at "
        + " and ".join(f"{at - led_at:.2f}" for at in traffic.runs_at[job])
        for job in traffic.twice
        if not plan.loses_acks
        or traffic.answered_at[job] > led_at + BOUND_S
        or traffic.runs_at[job][0] < start - ACKED_S
    ]


def _find_unexpected(traffic: Traffic, plan: TopologyFault) -> list[str]:
    errors = [
        error for error in traffic.refused.values() if not plan.may_raise or not isinstance(error, plan.may_raise)
    ]
    return sorted({f"{type(error).__name__}: {error}"[:300] for error in errors})
