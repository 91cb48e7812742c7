"""What the doctor says of replicas."""

from __future__ import annotations

from collections.abc import Iterator

from .._core.printable import printable
from .._redis.replica_health import ReplicaHealth
from .finding import Finding

MAX_REPLICA_LAG_BYTES = 1024 * 1024
MAX_SHOWN = 8


def examine_replicas(by_master: dict[str, ReplicaHealth]) -> Iterator[Finding]:
    """Examines the replicas of each master. One without replicas is judged elsewhere, by its persistence."""
    for address, each in by_master.items():
        yield from _examine_refusal(address, each)
    found = {address: each for address, each in by_master.items() if each.count}
    if not found:
        return
    online, count = sum(each.online for each in found.values()), sum(each.count for each in found.values())
    behind = max(each.behind for each in found.values())
    text = f"{online} of {count} replicas are online, and {behind:,} bytes behind at most"
    late = [at for at, each in found.items() if each.online < each.count or each.behind > MAX_REPLICA_LAG_BYTES]
    if late:
        of = f"; look at those of {', '.join(late)}" if all(late) else ""
        remedy = "look at the log of the replica that is behind or away: a failover to it loses jobs"
        yield Finding("server", "replicas", "warning", text + of, remedy)
    else:
        yield Finding("server", "replicas", "ok", text)
    for address, each in found.items():
        yield from _examine_away(address, each)
    if not all(each.has_minimum for each in found.values()):
        text = "min-replicas-to-write is 0: a master that is cut off takes jobs which a failover loses"
        remedy = "CONFIG SET min-replicas-to-write 1 on master and replicas; then CONFIG REWRITE"
        yield Finding("server", "min-replicas-to-write", "note", text, remedy)


def _examine_refusal(master: str, health: ReplicaHealth) -> Iterator[Finding]:
    """Examines a master that refuses writes although no replica is known to be away: it forgets those that are."""
    if health.refuses_writes and health.online >= health.count:
        name = f" {printable(master, 100)}" if master else ""
        text = f"the master{name} takes no adds: no replica follows it closely enough"
        text += ", and min-replicas-to-write wants one"
        remedy = (
            "start its replicas again, and look at their logs; without replicas: CONFIG SET min-replicas-to-write 0"
        )
        yield Finding("server", "min-replicas-to-write", "problem", text, remedy)


def _examine_away(master: str, health: ReplicaHealth) -> Iterator[Finding]:
    if health.online >= health.count:
        return
    names = "; ".join(f"{printable(address, 100)} {why}" for address, why in health.away[:MAX_SHOWN])
    of = f" of {printable(master, 100)}" if master else ""
    text = f"{health.online} of {health.count} replicas{of} follow their master"
    text += f" ({names})" if names else ""
    text += f", so an add with wait_replicas={health.count} raises NotReplicated"
    remedy = (
        "start it again, and look at its log; if it is gone for good: SENTINEL RESET, or CLUSTER FORGET, everywhere"
    )
    if health.refuses_writes:
        text += ", and the master takes no adds at all, because of min-replicas-to-write"
    yield Finding("server", "replicas away", "problem" if health.refuses_writes else "warning", text, remedy)
