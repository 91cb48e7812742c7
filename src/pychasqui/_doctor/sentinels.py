"""What the doctor says of Sentinels: who is the master, whether they can elect another, and what they see."""

from __future__ import annotations

from collections.abc import Iterator

from .._core.printable import printable
from .._redis.sentinel_health import SentinelHealth
from .finding import Finding


def examine_sentinels(health: SentinelHealth) -> Iterator[Finding]:
    """Examines what the Sentinels say. If none says anything, then nothing else is known."""
    if not health.answering:
        yield _describe_silence(health)
        return
    master = printable(health.master or next(iter(health.sentinels_by_master)), 100)
    yield _examine_master(health)
    if health.other_masters:
        others = _join(health.other_masters)
        text = f"{others} says that it is a master, too, and the Sentinels know it as a replica of {master}"
        remedy = "what is added there is lost when it becomes a replica again: wait for that, or use REPLICAOF there"
        yield Finding("server", "two masters", "problem", text, remedy)
    if health.see_master_down:
        text = f"{_join(health.see_master_down)} cannot reach {master}, which answers here"
        remedy = f"if {health.quorum} Sentinels cannot, they elect another: look at the network between them"
        yield Finding("server", "master's reach", "warning", text, remedy)
    yield from _examine_quorum(health)
    if health.replicas is None:
        text = "no Sentinel lets its user call SENTINEL REPLICAS, so a replica that is away is not noticed"
        remedy = "at each Sentinel: ACL SETUSER name +sentinel|replicas"
        yield Finding("server", "known replicas", "note", text, remedy)


def _describe_silence(health: SentinelHealth) -> Finding:
    reasons = "; ".join(f"{printable(at, 100)}: {printable(why, 200)}" for at, why in health.silence.items())
    text = f"no Sentinel says in time which server is the master of {printable(health.service, 100)}, and how it is"
    remedy = "look at the Sentinels, the network and the rights of their user; then run chasqui doctor again"
    return Finding("server", "sentinels", "problem", f"{text} ({reasons})" if reasons else text, remedy)


def _examine_master(health: SentinelHealth) -> Finding:
    if len(health.sentinels_by_master) == 1:
        (named,) = health.sentinels_by_master
        text = f"the Sentinels say that {printable(named, 100)} is the master"
        if health.master in (named, ""):
            return Finding("server", "master", "ok", text)
        text += f", and the connection leads to {printable(health.master, 100)}"
        remedy = "this passes soon after a failover; if it stays, look at the log of both servers and of the Sentinels"
        return Finding("server", "master", "problem", text, remedy)
    said = "; ".join(f"{_join(who)} says {printable(at, 100)}" for at, who in health.sentinels_by_master.items())
    text = f"the Sentinels do not agree on the master of {printable(health.service, 100)}: {said}"
    remedy = "this passes soon after a failover; if it stays: SENTINEL REMOVE and MONITOR at those that are wrong"
    return Finding("server", "master", "problem", text, remedy)


def _examine_quorum(health: SentinelHealth) -> Iterator[Finding]:
    living = len(health.answering) + len(health.unreached)
    needed = max(health.majority, health.quorum)
    text = f"{living} of {health.sentinel_count} Sentinels are up, and {needed} of them must agree on a failover"
    service = printable(health.service, 100)
    away, remedy = "", "set a quorum that they can reach: SENTINEL SET"
    if health.down:
        away = f": {_join(health.down)} is down"
        remedy = f"start it again; if it is gone for good: SENTINEL RESET {service} at each of the others"
    if living < needed:
        up = f"{living} of {health.sentinel_count} Sentinels are up"
        text = f"{up}, and {needed} must agree, so no other master can be elected"
        yield Finding("server", "sentinels", "problem", text + away, remedy)
    elif health.down:
        yield Finding("server", "sentinels", "warning", text + away, remedy)
    elif living == needed:
        text += ": if one of them is lost, no other master can be elected"
        yield Finding("server", "sentinels", "note", text, "run at least three, on machines of their own")
    else:
        yield Finding("server", "sentinels", "ok", text)
    if health.unreached:
        text = f"{_join(health.unreached)} does not answer here, and other Sentinels see it"
        remedy = "open the way from here, or have it announce an address that is known here: sentinel announce-ip"
        yield Finding("server", "sentinels' reach", "note", text, remedy)
    if health.strangers:
        text = f"{_join(health.strangers)} in redis_url does not answer, and no Sentinel of this master knows it"
        yield Finding("server", "sentinels' addresses", "warning", text, "start it, or remove it from redis_url")


def _join(addresses: list[str]) -> str:
    return ", ".join(printable(each, 100) for each in addresses)
