"""The doctor finds what is wrong with a server and with a queue, and says what to do about each of them."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Job, Queue, RepeatPattern, Worker
from pychasqui._doctor.replicas import examine_replicas
from pychasqui._doctor.sentinels import examine_sentinels
from pychasqui._redis.cluster_health import parse_node_lines
from pychasqui._redis.command_replies import ConsumerState
from pychasqui._redis.doctor import ClockReading, QueueHealth
from pychasqui._redis.replica_health import KnownReplica, parse_replica_health
from pychasqui._redis.sentinel_health import SeenServer, SentinelAnswer, SentinelHealth, merge_replicas
from pychasqui._redis.topology.node_map import Address
from pychasqui.cli.exits import ExitCode
from pychasqui.doctor import Doctor, Finding, examine_clock, examine_memory, examine_queue_health
from tests.cli.conftest import Finished
from tests.cli.terminals import on_terminal, plain
from tests.support.server import RedisServer


@pytest.fixture
def chasqui(forked: Finished) -> Finished:
    return forked


def examined(chasqui: Finished, url: str, *queues: str) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    """The exit code, and the findings by subject and check."""
    ended = chasqui("doctor", *queues, "--json", CHASQUI_REDIS_URL=url)
    answer = json.loads(ended.stdout)
    assert answer["schema"] == 1
    return ended.returncode, {(one["subject"], one["check"]): one for one in answer["findings"]}


def test_a_safe_server_is_ok(chasqui: Finished) -> None:
    with RedisServer("--appendonly", "yes") as server:
        code, found = examined(chasqui, server.url)
    assert code == 0
    levels = {check: one["level"] for (_, check), one in found.items()}
    assert levels.pop("version") in ("ok", "note")
    assert set(levels.values()) == {"ok"}
    assert set(levels) == {"persistence", "eviction", "memory", "connections", "clock"}


def test_settings_that_lose_jobs_are_found(chasqui: Finished) -> None:
    with RedisServer("--maxmemory-policy", "allkeys-lru", "--maxmemory", "64mb") as server:
        code, found = examined(chasqui, server.url)
    assert code == ExitCode.FAILED
    assert found["server", "eviction"]["level"] == "problem"
    assert "CONFIG SET maxmemory-policy noeviction" in found["server", "eviction"]["remedy"]
    assert found["server", "persistence"]["level"] == "warning"
    assert "of 64 MiB" in found["server", "memory"]["text"]


def test_a_user_that_may_not_ask_gets_a_warning(chasqui: Finished, server: RedisServer, redis_url: str) -> None:
    server.execute("ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", "-info")
    try:
        code, found = examined(chasqui, redis_url.replace("://", "://bob:pw@"))
    finally:
        server.execute("ACL", "DELUSER", "bob")
    assert (code, found["server", "settings"]["level"]) == (0, "warning")


async def test_wrong_keys_of_a_queue_are_a_problem(
    queue: Queue, witness: redis.asyncio.Redis, chasqui: Finished, redis_url: str
) -> None:
    await witness.set(f"{{chasqui:{queue.name}}}:dlq", "x")
    await queue.add("n")
    await queue.pause()
    code, found = examined(chasqui, redis_url)
    subject = f"queue {queue.name}"
    assert code == ExitCode.FAILED
    assert "is a string, and must be a stream" in found[subject, "keys"]["text"]
    assert found[subject, "workers"]["level"] == "warning"
    assert found[subject, "pause"]["remedy"] == f"chasqui resume {queue.name}"


@pytest.mark.parametrize(
    ("command", "value", "text"),
    (("RPUSH", "x", "dlq:dropped is a list, and must be a string"), ("SET", "9" * 5000, "all keys have their types")),
)
async def test_a_counter_that_others_have_written_is_no_error(
    queue: Queue, witness: redis.asyncio.Redis, redis_url: str, command: str, value: str, text: str
) -> None:
    key = f"{{chasqui:{queue.name}}}:dlq"
    await witness.xadd(key, {"d": "x"})
    await witness.execute_command(command, f"{key}:dropped", value)
    async with Doctor(redis_url) as doctor:
        found = await doctor.examine_queue(queue.name)
    assert found[0].text.endswith(text)


async def test_consumers_without_a_lease_are_found(
    queue: Queue, witness: redis.asyncio.Redis, chasqui: Finished, redis_url: str
) -> None:
    stream = f"{{chasqui:{queue.name}}}:stream"
    await queue.add("n")
    await witness.xgroup_create(stream, "default", "0")
    await witness.xgroup_create(stream, "other", "0")
    await witness.xreadgroup("default", "stranger", {stream: ">"})
    _, found = examined(chasqui, redis_url, queue.name)
    subject = f"queue {queue.name}"
    assert found[subject, "workers"]["text"] == "0 workers live, 1 official ones"
    assert "other" in found[subject, "group"]["text"]


async def test_a_living_worker_is_counted(queue: Queue, chasqui: Finished, redis_url: str) -> None:
    async def handle(job: Job) -> None: ...

    async with Worker(queue.name, handle, redis_url=redis_url) as worker:
        running = asyncio.create_task(worker.run())
        while not await queue.workers():
            await asyncio.sleep(0.01)
        _, found = await asyncio.to_thread(examined, chasqui, redis_url, queue.name)
        await worker.close()
        await running
    assert found[f"queue {queue.name}", "workers"]["text"] == "1 worker lives, 0 official ones"


async def test_the_findings_on_a_terminal_fit_80_columns(queue: Queue, tmp_path: Path, redis_url: str) -> None:
    await queue.add("n")
    code, text = on_terminal("doctor", queue.name, folder=tmp_path, CHASQUI_REDIS_URL=redis_url)
    assert code == 0
    assert "-> start a worker" in plain(text)
    assert max(map(len, plain(text).splitlines())) <= 80


def test_a_server_that_is_away_has_its_exit_code(chasqui: Finished) -> None:
    ended = chasqui("doctor", "--redis-url", "redis://127.0.0.1:1")
    assert (ended.returncode, ended.stdout) == (ExitCode.REDIS, "")


@pytest.mark.parametrize(
    ("clock", "level"),
    (
        (ClockReading(5000, 3), "warning"),
        (ClockReading(-5000, 3), "warning"),
        (ClockReading(900, 3), "ok"),
        (ClockReading(1500, 2000), "ok"),  # not known exactly enough
    ),
)
def test_a_clock_that_differs_is_a_warning(clock: ClockReading, level: str) -> None:
    assert examine_clock(clock).level == level


@pytest.mark.parametrize(
    ("used", "bound", "level"), ((10, 100, "ok"), (80, 100, "warning"), (95, 100, "problem"), (950, 0, "problem"))
)
def test_a_full_memory_is_found(used: int, bound: int, level: str) -> None:
    info = {"used_memory": str(used), "maxmemory": str(bound), "total_system_memory": "1000"}
    assert [one.level for one in examine_memory(info)] == [level]


def test_one_job_and_one_dead_letter_are_no_jobs_and_letters() -> None:
    health = QueueHealth(
        wrong_types={},
        groups=[],
        entries=1,
        dead=1,
        dead_dropped=1,
        is_paused=False,
        consumers=[],
        with_living_lease=set(),
        with_ended_lease=set(),
    )
    texts = [one.text for one in examine_queue_health("queue q", health) if one.level != "ok"]
    assert texts == [
        "1 job is there, and the consumer group default is not",
        "1 job is there, and no worker lives",
        "1 dead letter was dropped because there was no room",
        "1 dead letter is there",
    ]


@pytest.mark.parametrize(
    ("replica", "expected", "levels"),
    (
        ("state=online,offset=5000000", 1, ["ok", "note"]),
        ("state=online,offset=3000000", 1, ["warning", "note"]),  # 2 MB behind
        ("state=send_bulk,offset=0", 1, ["warning", "warning", "note"]),
        ("state=online,offset=5000000", 2, ["warning", "warning", "note"]),  # one is away
    ),
)
def test_a_replica_that_is_behind_or_away_is_found(replica: str, expected: int, levels: list[str]) -> None:
    info = {"master_repl_offset": "5000000", "slave0": f"ip=10.0.0.2,port=6379,{replica},lag=0"}
    known = [KnownReplica(f"r{number}:6379", Address(f"10.0.0.{number}", 6379)) for number in range(2, 2 + expected)]
    found = examine_replicas({"": parse_replica_health(info, known)})
    assert [one.level for one in found] == levels


def away(states: dict[str, str], *known: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    info = {f"slave{number}": f"ip={ip},port=1,state={state}" for number, (ip, state) in enumerate(states.items())}
    return parse_replica_health(info, [KnownReplica(f"{ip}:1", Address(ip, 1), trouble) for ip, trouble in known]).away


def test_a_replica_that_does_not_follow_is_named_with_the_reason() -> None:
    online = {"a": "online"}
    assert away(online, ("a", ""), ("b", "")) == (("b:1", "is not connected to the master"),)
    assert away(online, ("a", ""), ("b", "is down")) == (("b:1", "is down"),)
    assert away({**online, "b": "send_bulk"}, ("a", ""), ("b", "")) == (("b:1", "is not in sync yet (send_bulk)"),)
    assert away(online, ("a", "is down")) == ()  # the master knows better
    assert away(online, ("name", ""), ("b", "")) == ()  # which of them is missing cannot be known


def test_the_finding_of_a_replica_that_is_away_says_what_follows() -> None:
    info = {"slave0": "ip=a,port=1,state=online", "min_slaves_good_slaves": "0"}
    health = parse_replica_health(
        info, [KnownReplica("a:1", Address("a", 1)), KnownReplica("b:1", Address("b", 1), "is down")]
    )
    found = {one.check: one for one in examine_replicas({"m:1": health})}["replicas away"]
    assert found.level == "problem"
    assert found.text == (
        "1 of 2 replicas of m:1 follow their master (b:1 is down), so an add with wait_replicas=2 raises "
        "NotReplicated, and the master takes no adds at all, because of min-replicas-to-write"
    )


def test_a_master_that_needs_replicas_to_write_has_no_note_about_it() -> None:
    info = {"slave0": "ip=h,port=1,state=online,offset=0,lag=0", "min_slaves_good_slaves": "1"}
    assert [one.check for one in examine_replicas({"": parse_replica_health(info)})] == ["replicas"]
    assert list(examine_replicas({"": parse_replica_health({})})) == []


def sentinel_health(master: str, *, named: list[str], silence: dict[str, str]) -> SentinelHealth:
    """As three Sentinels say it, or none. Each of `named` is a master that at least one of them names."""
    answering = [f"s{number}:26379" for number in range(3 if named else 0)]
    return SentinelHealth(
        service="mymaster",
        master=master,
        silence=silence,
        quorum=2 if named else 0,
        answering=answering,
        unreached=[],
        down=[],
        strangers=list(silence),
        sentinels_by_master={at: answering[number :: len(named)] for number, at in enumerate(named)},
        see_master_down=[],
        replicas=[] if named else None,
        other_masters=[],
    )


def test_sentinels_that_do_not_answer_say_nothing_of_the_master() -> None:
    health = sentinel_health("m:1", named=[], silence={"s0:26379": "no answer in time"})
    (found,) = examine_sentinels(health)
    assert (found.check, found.level) == ("sentinels", "problem")
    assert found.text == (
        "no Sentinel says in time which server is the master of mymaster, and how it is (s0:26379: no answer in time)"
    )
    assert "remove it" not in found.remedy


@pytest.mark.parametrize(
    ("connected", "named", "level", "text"),
    (
        ("m:1", ["m:1"], "ok", "the Sentinels say that m:1 is the master"),
        ("", ["m:1"], "ok", "the Sentinels say that m:1 is the master"),
        ("[::1]:6379", ["[::1]:6379"], "ok", "the Sentinels say that [::1]:6379 is the master"),
        ("m:1", ["n:1"], "problem", "the Sentinels say that n:1 is the master, and the connection leads to m:1"),
    ),
)
def test_the_master_that_the_sentinels_name_is_compared_with_the_connected_one(
    connected: str, named: list[str], level: str, text: str
) -> None:
    found = {one.check: one for one in examine_sentinels(sentinel_health(connected, named=named, silence={}))}
    assert (found["master"].level, found["master"].text) == (level, text)
    assert found["sentinels"].level == "ok"


def sentinel_answer(master: Address, *replicas: Address) -> SentinelAnswer:
    seen = [SeenServer(each, "", "") for each in replicas]
    return SentinelAnswer("", master, quorum=2, is_master_down=False, others=[], replicas=seen)


@pytest.mark.parametrize(("host", "text"), (("10.0.0.1", "10.0.0.1:6379"), ("::1", "::1:6379"), ("::1", "[::1]:6379")))
def test_the_master_is_no_replica_although_a_sentinel_that_missed_a_failover_lists_it(host: str, text: str) -> None:
    master, former = Address(host, 6379), Address(host, 6380)
    known = merge_replicas(
        [sentinel_answer(master, former), sentinel_answer(former, master)], Address.parse_with_port_or_zero(text)
    )
    assert known == [KnownReplica(str(former), former)]
    info = {"slave0": f"ip={host},port=6380,state=online,offset=0,lag=0"}
    health = parse_replica_health(info, known)
    assert (health.count, health.online, health.away) == (1, 1, ())


def test_a_replica_with_an_ipv6_address_is_found_at_its_master() -> None:
    known = [KnownReplica(f"[::1]:{port}", Address("::1", port), "is down") for port in (6380, 6381)]
    health = parse_replica_health({"slave0": "ip=::1,port=6380,state=online,offset=0,lag=0"}, known)
    assert health.away == (("[::1]:6381", "is down"),)


@pytest.mark.parametrize("replicas", ({}, {"slave0": "ip=a,port=1,state=online,offset=0,lag=99"}))
def test_a_master_that_refuses_writes_is_a_problem_also_where_no_replica_is_known_to_be_away(
    replicas: dict[str, str],
) -> None:
    health = parse_replica_health({"role": "master", "min_slaves_good_slaves": "0", **replicas})
    found = {one.check: one for one in examine_replicas({"m:1": health})}
    assert found["min-replicas-to-write"].level == "problem"
    text = "the master m:1 takes no adds: no replica follows it closely enough, and min-replicas-to-write wants one"
    assert found["min-replicas-to-write"].text == text
    assert ("replicas" in found) == bool(replicas)
    assert "replicas away" not in found
    replica = parse_replica_health({"role": "slave", "min_slaves_good_slaves": "0"})
    assert list(examine_replicas({"": replica})) == []  # it takes none anyway


def test_a_server_whose_only_replica_is_away_is_a_problem(chasqui: Finished) -> None:
    with RedisServer() as server:
        server.execute("CONFIG", "SET", "min-replicas-to-write", "1")
        _, found = examined(chasqui, server.url)
    assert found["server", "min-replicas-to-write"]["level"] == "problem"
    assert "takes no adds" in found["server", "min-replicas-to-write"]["text"]


def test_nodes_of_a_cluster_are_called_by_the_names_that_they_announce() -> None:
    """As Redis 6.2, 7.0 and 8.6 list them."""
    text = (
        "a 10.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-99 200 [5->-b]\n"
        "b 10.0.0.2:7000@17000,n2.example,,tls-port=0,shard-id=x slave a 0 0 1 connected\n"
        "c [::1]:7000@17000,,tls-port=0 master,fail - 0 0 1 connected 100-199\n"
        "odd\n"
    )
    lines = parse_node_lines(text)
    assert [line.address for line in lines] == ["10.0.0.1:7000", "n2.example:7000", "[::1]:7000"]
    assert [line.slots for line in lines] == [["0-99", "200", "[5->-b]"], [], ["100-199"]]


def test_the_consumers_of_dead_programs_are_found() -> None:
    health = QueueHealth(
        wrong_types={},
        groups=["default"],
        entries=5,
        dead=0,
        dead_dropped=7,
        is_paused=False,
        consumers=[
            ConsumerState("ours", 1, 20_000),
            ConsumerState("stuck\x1b", 3, 60_000),
            ConsumerState("gone", 0, 10**9),
        ],
        with_living_lease={"ours"},
        with_ended_lease=set(),
    )
    found: list[Finding] = list(examine_queue_health("queue q", health))
    texts = [one.text for one in found]
    assert "1 unknown consumers hold 3 jobs: stuck\\x1b" in texts
    assert any("hold nothing: gone" in text for text in texts)
    assert any("7 dead letters were dropped" in text for text in texts)
    assert all(one.remedy for one in found if one.level != "ok")


async def test_delayed_jobs_and_repeatables_that_are_not_moved_are_found(
    chasqui: Finished, queue: Queue, redis_url: str, server: RedisServer
) -> None:
    await queue.add("later", delay_ms=60_000)
    await queue.repeatables.upsert("again", repeat=RepeatPattern.every(60_000), key="again")
    _, found = examined(chasqui, redis_url, queue.name)
    assert (f"queue {queue.name}", "delayed") not in found
    assert (f"queue {queue.name}", "repeatables") not in found
    for name in ("delayed", "repeat"):
        key = f"{{chasqui:{queue.name}}}:{name}"
        (member,) = server.execute("ZRANGE", key, "0", "-1")
        server.execute("ZINCRBY", key, "-120000", member)
    _, found = examined(chasqui, redis_url, queue.name)
    late, stale = found[f"queue {queue.name}", "delayed"], found[f"queue {queue.name}", "repeatables"]
    assert late["text"].startswith("the first delayed job has been due for 6")
    assert f"chasqui promoter {queue.name}" in late["remedy"]
    assert stale["text"].startswith("the first repeatable has been due for 6")
    assert f"chasqui scheduler {queue.name}" in stale["remedy"]


def test_the_lines_for_users_with_few_rights_are_taken_by_the_server(chasqui: Finished, tmp_path: Path) -> None:
    with RedisServer() as server:
        ended = chasqui("doctor", "--acl", "orders-*", 'o"dd', CHASQUI_REDIS_URL=server.url)
        answer = json.loads(chasqui("doctor", "--acl", "orders-*", "--json", CHASQUI_REDIS_URL=server.url).stdout)
        lines = ended.stdout.splitlines()
        with socket.socket(socket.AF_UNIX) as line:  # inline commands are read as redis-cli reads them
            line.connect(str(server.socket_path))
            line.sendall("".join(f"{one}\r\n" for one in lines).encode())
            received = b""
            while received.count(b"\r\n") < len(lines):
                received += line.recv(1000)
    assert ended.returncode == 0
    assert received == b"+OK\r\n" * 4
    assert [user["role"] for user in answer["users"]] == ["producer", "worker", "inspector", "operator"]
    assert "~{chasqui:orders-*}:*" in answer["users"][0]["rules"]


def test_a_name_that_no_pattern_can_hold_is_wrong_usage(chasqui: Finished, redis_url: str) -> None:
    ended = chasqui("doctor", "--acl", "my orders", CHASQUI_REDIS_URL=redis_url)
    assert ended.returncode == ExitCode.USAGE
    assert "has a space in its name" in ended.stderr
