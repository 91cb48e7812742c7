"""What the doctor says of a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from .._core.printable import printable
from .._redis.cluster_health import ClusterHealth, MasterHealth
from .finding import Finding
from .replicas import examine_replicas

MAX_MASTERS_SHOWN = 8


def examine_cluster(cluster: ClusterHealth) -> Iterator[Finding]:
    masters = cluster.masters
    text = f"{len(masters)} masters of {cluster.nodes} nodes have {cluster.slots:,} of 16,384 slots"
    if cluster.is_ok:
        yield Finding("server", "cluster", "ok", text)
    else:
        yield Finding(
            "server", "cluster", "problem", f"{text}, and the cluster is down", "redis-cli --cluster check, then fix"
        )
    shown = "; ".join(map(_describe_master, masters[:MAX_MASTERS_SHOWN]))
    yield Finding("server", "masters", "ok", shown + ("; ..." if len(masters) > MAX_MASTERS_SHOWN else ""))
    if silent := [each.address for each in masters if not each.answers]:
        text = f"{', '.join(silent)} does not answer, and the queues in its slots stand still"
        remedy = "start it again, or wait until a replica has taken over"
        yield Finding("server", "silent masters", "problem", text, remedy)
    yield from examine_replicas({each.address: each.replicas for each in masters if each.replicas is not None})
    if cluster.open_slots:
        shown = ", ".join(cluster.open_slots[:5]) + (", ..." if len(cluster.open_slots) > 5 else "")
        text = f"slots are half-migrated, and queues in them stand still: {shown}"
        remedy = "if nobody is moving them now: redis-cli --cluster fix"
        yield Finding("server", "open slots", "warning", text, remedy)


def _describe_master(master: MasterHealth) -> str:
    replicas = {0: "no replica", 1: "1 replica"}.get(master.replica_count, f"{master.replica_count} replicas")
    return f"{printable(master.address, 100)} has {master.slots:,} slots and {replicas}"
