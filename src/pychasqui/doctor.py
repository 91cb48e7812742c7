"""Doctor: examines a server and its queues, and says of each finding what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ._core.checks import check_queue_name
from ._core.defaults import GROUP
from ._core.printable import printable
from ._doctor.cluster import examine_cluster
from ._doctor.finding import Finding, Level
from ._doctor.replicas import examine_replicas
from ._doctor.sentinels import examine_sentinels
from ._redis.acl import ANY, ROLES, make_acl_rules
from ._redis.doctor import ClockReading, DoctorBroker, QueueHealth
from ._redis.replica_health import parse_replica_health
from ._redis.server_checks import Risks, read_risks
from ._redis.server_session import ServerSession

__all__ = ["AclUser", "Doctor", "Finding", "Level"]

SKEW_MS = 1000  # a job's age and the end of a job's result are then visibly wrong
LARGE_SHARE, FULL_SHARE = 0.75, 0.9  # of the memory
SEEN_LATELY_MS = 15_000
LATE_MS = 15_000  # of what is due; workers move it at once
GONE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class AclUser:
    """A Redis user for one role: its name, and the rules that give it the rights it needs, and no others."""

    name: str
    role: str  # "producer", "worker", "inspector" or "operator"
    rules: tuple[str, ...]

    @property
    def line(self) -> str:
        """The command that makes the user, or changes its rights, as redis-cli takes it. It changes no password."""
        return " ".join(["ACL SETUSER", self.name, *map(_quote_for_redis_cli_if_needed, self.rules)])


class Doctor(ServerSession):
    """`async with Doctor(redis_url) as doctor:` examines a server and its queues. It changes nothing.

    redis_url   as of Queue
    timeout_s   a call answers or raises within this time
    """

    def __init__(self, redis_url: str | None = None, *, timeout_s: float = 10.0) -> None:
        super().__init__(redis_url, client_name="chasqui-doctor", timeout_s=timeout_s)
        self._broker = DoctorBroker(self._server, self._connector.sentinel_location_or_none)

    async def examine_server(self) -> list[Finding]:
        """Looks at the server's version, persistence, eviction policy, memory, connections and clock."""
        clock = await self._broker.compare_clocks()  # the first call, which makes the connection
        found = list(_examine_version(self._broker))
        info, cluster = await self._broker.read_info_or_none(), await self._broker.read_cluster_health()
        sentinels = await self._broker.read_sentinel_health()
        if info is None:
            text = "this user may not call INFO, so persistence, eviction and memory are unknown"
            found.append(Finding("server", "settings", "warning", text, "allow the user INFO: ACL SETUSER name +info"))
        else:
            found += [*_examine_role(info), *_examine_persistence(info), *_examine_eviction(info)]
            found += [*examine_memory(info), *_examine_clients(info)]
            known = [] if sentinels is None else sentinels.replicas or []
            found += examine_replicas({"": parse_replica_health(info, known)}) if cluster is None else []
        if sentinels is not None:
            found += examine_sentinels(sentinels)
        if cluster is not None:
            found += examine_cluster(cluster)
        return [*found, examine_clock(clock)]

    async def examine_queue(self, name: str) -> list[Finding]:
        """Looks at the types of a queue's keys, its consumer group, its consumers, and whether it is paused."""
        return list(examine_queue_health(f"queue {name}", await self._broker.read_queue_health(check_queue_name(name))))

    async def acl_users(self, *queue_names: str) -> list[AclUser]:
        """Returns a user for each role, for these queues.

        A name that ends with * stands for all queues whose names begin so; without names, the users are for all queues.
        """
        await self._broker.compare_clocks()  # makes the connection: the rights differ by what the server can do
        capabilities, names = self._broker.list_capabilities(), queue_names or (ANY,)
        in_cluster, has_shards = self._broker.is_in_cluster, self._broker.has_shard_channels
        for name in names:
            check_queue_name(name)
        return [
            AclUser(
                f"chasqui-{role.name}",
                role.name,
                tuple(make_acl_rules(role, names, capabilities, in_cluster=in_cluster, has_shard_channels=has_shards)),
            )
            for role in ROLES
        ]


def _examine_version(broker: DoctorBroker) -> Iterator[Finding]:
    capabilities = broker.list_capabilities()
    lacks = [name for name, is_there in capabilities.items() if not is_there]
    if lacks:
        text = f"{broker.get_server_name_and_version()}, without {', '.join(lacks)}"
        remedy = "nothing is lost by that; Redis 8.6 or newer has them all and is faster"
        yield Finding("server", "version", "note", text, remedy)
    else:
        yield Finding(
            "server", "version", "ok", f"{broker.get_server_name_and_version()}, with {', '.join(capabilities)}"
        )
    if vulnerability := broker.describe_known_vulnerability():
        text, _, remedy = vulnerability.partition(": ")
        yield Finding("server", "vulnerability", "warning", text, remedy)


def _examine_role(info: dict[str, str]) -> Iterator[Finding]:
    if info.get("role", "master") != "master":
        master = printable(f"{info.get('master_host', '?')}:{info.get('master_port', '?')}")
        text = "the server is a replica, which takes no jobs"
        yield Finding("server", "role", "problem", text, f"use the address of its master, {master}")


def _examine_persistence(info: dict[str, str]) -> Iterator[Finding]:
    risks = _read_risks_from_info(info)
    failed = [name for name in ("rdb_last_bgsave_status", "aof_last_write_status") if info.get(name, "ok") != "ok"]
    if failed:
        text = f"the server cannot write to its disk ({', '.join(failed)} is not ok)"
        yield Finding(
            "server", "persistence", "problem", text, "look at the server's log, and at the space on its disk"
        )
    elif risks.persistence:
        remedy = "CONFIG SET appendonly yes, and appendfsync everysec or always; then CONFIG REWRITE"
        yield Finding("server", "persistence", "warning", risks.persistence, remedy)
    else:
        yield Finding("server", "persistence", "ok", "appendonly is yes")


def _examine_eviction(info: dict[str, str]) -> Iterator[Finding]:
    risks = _read_risks_from_info(info)
    if risks.eviction:
        remedy = "CONFIG SET maxmemory-policy noeviction; then CONFIG REWRITE"
        yield Finding("server", "eviction", "problem", risks.eviction.partition(";")[0], remedy)
    else:
        yield Finding("server", "eviction", "ok", "maxmemory-policy is noeviction")
    if _read_info_number_or_zero(info, "evicted_keys"):
        text = f"the server has evicted {_read_info_number_or_zero(info, 'evicted_keys'):,} keys since its start"
        yield Finding("server", "evicted", "warning", text, "jobs may be among them: set noeviction and more memory")


def _read_risks_from_info(info: dict[str, str]) -> Risks:
    return read_risks("\n".join(f"{name}:{value}" for name, value in info.items()))


def examine_memory(info: dict[str, str]) -> Iterator[Finding]:
    used, bound = _read_info_number_or_zero(info, "used_memory"), _read_info_number_or_zero(info, "maxmemory")
    of = bound or _read_info_number_or_zero(info, "total_system_memory")
    share = used / of if of else 0.0
    text = f"{_format_bytes(used)} of {_format_bytes(of)} are used" + (
        "" if bound else ", which is all that the machine has"
    )
    if share >= LARGE_SHARE:
        remedy = "give it more memory, or remove what is not needed: chasqui ps, chasqui dlq remove, chasqui purge"
        yield Finding("server", "memory", "problem" if share >= FULL_SHARE else "warning", text, remedy)
    else:
        yield Finding("server", "memory", "ok", text)


def _examine_clients(info: dict[str, str]) -> Iterator[Finding]:
    clients, max_clients = (
        _read_info_number_or_zero(info, "connected_clients"),
        _read_info_number_or_zero(info, "maxclients"),
    )
    text = f"{clients:,} of {max_clients:,} connections are open"
    if max_clients and clients >= LARGE_SHARE * max_clients:
        yield Finding("server", "connections", "warning", text, "raise maxclients, or run fewer processes")
    else:
        yield Finding("server", "connections", "ok", text)


def examine_clock(clock: ClockReading) -> Finding:
    direction = "ahead of" if clock.ahead_ms > 0 else "behind"
    ahead_ms, within_ms = abs(clock.ahead_ms), max(1.0, clock.within_ms)
    if ahead_ms - within_ms > SKEW_MS:
        text = f"the server's clock is {ahead_ms / 1000:.1f} s {direction} that of this machine"
        remedy = "run NTP on both; jobs are due by the server's clock, and are dated by the clock of who adds them"
        return Finding("server", "clock", "warning", text, remedy)
    return Finding(
        "server", "clock", "ok", f"the server's clock differs by {ahead_ms:.0f} ms, give or take {within_ms:.0f}"
    )


def examine_queue_health(subject: str, health: QueueHealth) -> Iterator[Finding]:
    for key, (kind, wanted) in health.wrong_types.items():
        text = f"key {printable(key)} is a {printable(kind)}, and must be a {wanted}"
        yield Finding(
            subject, "keys", "problem", text, f"another program has written it: RENAME {printable(key)} to another name"
        )
    if not health.wrong_types:
        yield Finding(subject, "keys", "ok", "all keys have their types")
    if health.entries and GROUP not in health.groups:
        there = f"{_format_number_with_verb(health.entries, 'job', 'is', 'are')} there"
        text = f"{there}, and the consumer group {GROUP} is not"
        yield Finding(subject, "group", "warning", text, "start a worker: it makes the group")
    others = [printable(name, 60) for name in health.groups if name != GROUP]
    if others:
        text = f"there are other consumer groups: {', '.join(others[:5])}"
        remedy = "each group runs every job: remove those that are not meant, by XGROUP DESTROY"
        yield Finding(subject, "group", "warning", text, remedy)
    yield from _examine_consumers(subject, health)
    yield from _examine_lateness(subject, health)
    if health.is_paused:
        yield Finding(subject, "pause", "warning", "the queue is paused", f"chasqui resume {subject.partition(' ')[2]}")
    if health.dead_dropped:
        dropped = _format_number_with_verb(health.dead_dropped, "dead letter", "was", "were")
        text = f"{dropped} dropped because there was no room"
        yield Finding(
            subject, "dead letters", "warning", text, "raise the worker's dlq_max_stream_len, and look at them in time"
        )
    if health.dead:
        text = f"{_format_number_with_verb(health.dead, 'dead letter', 'is', 'are')} there"
        yield Finding(subject, "dead letters", "note", text, f"chasqui dlq groups {subject.partition(' ')[2]}")


def _format_number_with_verb(count: int, noun: str, verb_of_one: str, verb: str) -> str:
    return f"1 {noun} {verb_of_one}" if count == 1 else f"{count:,} {noun}s {verb}"


def _examine_consumers(subject: str, health: QueueHealth) -> Iterator[Finding]:
    unknown = [one for one in health.consumers if one.name not in health.with_living_lease]
    official = [one for one in unknown if one.name not in health.with_ended_lease and one.idle_ms < SEEN_LATELY_MS]
    stuck = [one for one in unknown if one.pending and one.idle_ms >= SEEN_LATELY_MS]
    gone = [
        one for one in unknown if not one.pending and one.idle_ms >= GONE_MS and one.name not in health.with_ended_lease
    ]
    alive = len(health.with_living_lease) + len(official)
    if not alive and health.entries:
        text = f"{_format_number_with_verb(health.entries, 'job', 'is', 'are')} there, and no worker lives"
        yield Finding(subject, "workers", "warning", text, "start a worker: chasqui worker MODULE:ATTRIBUTE")
    else:
        living = _format_number_with_verb(len(health.with_living_lease), "worker", "lives", "live")
        yield Finding(subject, "workers", "ok", f"{living}, {len(official):,} official ones")
    if stuck:
        held = sum(one.pending for one in stuck)
        text = f"{len(stuck)} unknown consumers hold {held:,} jobs: {_join_first_consumer_names(stuck)}"
        remedy = "if they are dead, a living worker takes their jobs over; start one if none lives"
        yield Finding(subject, "consumers", "warning", text, remedy)
    if gone:
        names = _join_first_consumer_names(gone)
        text = f"{len(gone)} unknown consumers have not been seen for an hour, and hold nothing: {names}"
        yield Finding(subject, "consumers", "note", text, "XGROUP DELCONSUMER removes them; they do no harm")


def _examine_lateness(subject: str, health: QueueHealth) -> Iterator[Finding]:
    """What is due is moved by the workers, or by a process of its own; it may be late without a job in the stream."""
    name = subject.partition(" ")[2]
    for check, what, role, late_ms in (
        ("delayed", "delayed job", "promoter", health.delayed_late_ms),
        ("repeatables", "repeatable", "scheduler", health.repeatable_late_ms),
    ):
        if late_ms >= LATE_MS:
            text = f"the first {what} has been due for {late_ms // 1000:,} s"
            remedy = (
                f"start a worker, or chasqui {role} {name}; where one runs, its log and its /readyz say what is wrong"
            )
            yield Finding(subject, check, "warning", text, remedy)


def _join_first_consumer_names(consumers: Sequence[object]) -> str:
    shown = [printable(str(getattr(one, "name", "")), 60) for one in consumers[:3]]
    return ", ".join(shown) + (", ..." if len(consumers) > 3 else "")


def _quote_for_redis_cli_if_needed(word: str) -> str:
    """Quotes a word for redis-cli, if it must be quoted."""
    if not {'"', "'"} & set(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read_info_number_or_zero(info: dict[str, str], name: str) -> int:
    value = info.get(name, "0")
    return int(value) if value.isdecimal() and len(value) < 20 else 0


def _format_bytes(count: int) -> str:
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
