"""The users that `chasqui doctor --acl` prints: each role does its work with them, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from pychasqui import (
    Job,
    Queue,
    QueueEvents,
    QueueExporter,
    RepeatPattern,
    ReplyError,
    RetryPolicy,
    UnrecoverableError,
    Worker,
)
from pychasqui._redis.acl import NEWER, make_acl_rules
from pychasqui._redis.acl import ROLES as ALL_ROLES
from pychasqui._redis.keys import REGISTRY
from pychasqui.doctor import AclUser, Doctor
from pychasqui.errors import ChasquiError
from tests.support.server import RedisServer
from tests.support.waiting import eventually

USERS = Path(__file__).parents[2] / "deploy" / "acl" / "users.acl"
ROLES = tuple(role.name for role in ALL_ROLES)
QUICK = RetryPolicy(initial_ms=5, jitter_ms=0)

# Every command that a role has, on a key of the other tenant. %s is the key.
FOREIGN = (
    *("XADD %s * d x", "XLEN %s", "XDEL %s 1-1", "XRANGE %s - +", "XREVRANGE %s + -", "XREAD STREAMS %s 0"),
    *("XINFO STREAM %s", "XREADGROUP GROUP default c STREAMS %s >", "XACK %s default 1-1", "XPENDING %s default"),
    *("XCLAIM %s default c 0 1-1", "XAUTOCLAIM %s default c 0 0", "XGROUP CREATE %s g 0", "XTRIM %s MAXLEN 0"),
    *("XGROUP DESTROY %s default", "XSETID %s 9-9", "GET %s", "SET %s x", "MGET %s", "DEL %s", "EXISTS %s", "TYPE %s"),
    *("PEXPIRE %s 1", "PTTL %s", "PERSIST %s", "HGET %s f", "HMGET %s f", "HSET %s f x", "HSETNX %s f x", "HDEL %s f"),
    *("HLEN %s", "HGETALL %s", "ZADD %s 1 m", "ZREM %s m", "ZSCORE %s m", "ZCARD %s", "ZRANGE %s 0 -1"),
    *("ZRANGEBYSCORE %s 0 1", "ZPOPMIN %s", "INCRBY %s 1", "APPEND %s x", "PUBLISH %s x", "SUBSCRIBE %s"),
)
FORBIDDEN = (
    *("FLUSHALL", "FLUSHDB", "KEYS *", "SCAN 0", "CONFIG GET maxmemory", "CONFIG SET maxmemory 1", "MONITOR"),
    *("ACL LIST", "ACL WHOAMI", "SHUTDOWN NOSAVE", "REPLICAOF NO ONE", "CLIENT LIST", "CLIENT KILL TYPE normal"),
    *("SCRIPT FLUSH", "SCRIPT KILL", "SAVE", "SWAPDB 0 1", "RANDOMKEY", "DBSIZE", "RENAME %s x"),
    *("DUMP %s", "RESTORE %s 0 x", "COPY %s x", "SORT %s", "OBJECT ENCODING %s", "FUNCTION LIST", "MODULE LIST"),
)
NOT_A_PRODUCERS = (
    *("XREADGROUP GROUP default c STREAMS %s >", "XACK %s default 1-1", "XCLAIM %s default c 0 1-1", "INFO"),
    *("XAUTOCLAIM %s default c 0 0", "XGROUP DESTROY %s default", "XTRIM %s MAXLEN 0", "XPENDING %s default"),
)
NOT_A_WORKERS = (
    "XAUTOCLAIM %s default c 0 0",
    "XREAD STREAMS %s 0",
    "HKEYS %s",
    "MULTI",
    "XSETID %s 9-9",
    "WAIT 0 0",
)
NOT_AN_OPERATORS = (
    *("XREADGROUP GROUP default c STREAMS %s >", "XACK %s default 1-1", "XCLAIM %s default c 0 1-1", "INFO"),
    *("XGROUP DESTROY %s default", "XTRIM %s MAXLEN 0", "CLIENT UNBLOCK 1", "SUBSCRIBE %s", "UNLINK %s"),
)
NOT_AN_INSPECTORS = (
    *(
        "XADD %s * d x",
        "XDEL %s 1-1",
        "SET %s x",
        "DEL %s",
        "ZADD %s 1 m",
        "HSET %s f x",
        "PUBLISH %s x",
        "PEXPIRE %s 1",
    ),
    *("XREADGROUP GROUP default c STREAMS %s >", "XGROUP CREATE %s g 0", "EXPIRE %s 1", "INCR %s", "INFO"),
    'EVAL "return 1" 0',
)


async def acl_users(url: str, *queues: str) -> list[AclUser]:
    async with Doctor(url) as doctor:
        return await doctor.acl_users(*queues)


class Tenants:
    """A server with the users of two tenants, each for a queue of its own."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        for tenant in ("a", "b"):
            for user in asyncio.run(acl_users(server.url, tenant)):
                server.execute("ACL", "SETUSER", f"{user.name}-{tenant}", *user.rules, "on", f">secret-{tenant}")
        server.execute("ACL", "LOG", "RESET")

    def url(self, role: str, tenant: str = "a") -> str:
        return f"redis://chasqui-{role}-{tenant}:secret-{tenant}@127.0.0.1:{self.server.port}"

    def refusals(self) -> list[dict[str, Any]]:
        """The commands that were denied to any user since the start, but for the registry, which Redis 6.2 shows."""
        with self.server.client() as client:
            return [refusal for refusal in client.acl_log() if refusal["object"] not in (REGISTRY, "zcard")]

    async def verdict(self, role: str, line: str, key: str) -> str:
        """The server's refusal of a command of that user; "" if it runs it."""
        words = ["return 1" if word == '"return' else word for word in line.replace(' 1"', "").split()]
        client = redis.asyncio.Redis.from_url(self.url(role), single_connection_client=True)
        try:
            await client.execute_command(*(key if word == "%s" else word for word in words))
        except redis.exceptions.RedisError as error:
            return str(error) or type(error).__name__
        finally:
            await client.aclose()
        return ""


@pytest.fixture
def tenants() -> Iterator[Tenants]:
    with RedisServer(tcp=True) as server:
        yield Tenants(server)


async def handle(job: Job) -> str:
    if job.name == "dies":
        raise UnrecoverableError(job.id)
    if job.name == "again" and job.attempt == 0:
        raise ValueError(job.id)
    await job.progress(50)
    await job.log("a line")
    return job.name


async def _produce(queue: Queue) -> list[Job]:
    jobs = await queue.add_bulk([{"name": "now"}, {"name": "dies"}, {"name": "again"}])
    jobs.append(await queue.add("alone"))
    await queue.add_bulk({"name": "large", "data": b"x" * 20_000} for _ in range(100))  # in transactions
    jobs.append(await queue.add("later", delay_ms=20))
    jobs.append(await queue.add("only", job_id="the-only-one", delay_ms=10))
    kept = await queue.add("kept", delay_ms=3_600_000)
    assert await queue.reschedule(kept.id, 3_600_000)
    assert await queue.cancel_delayed(kept.id)
    for gone in (await queue.add("kept", delay_ms=3_600_000), await queue.add("never", job_id="never", delay_ms=10**7)):
        assert await queue.cancel(gone.id)
    await queue.cancel("nobody knows")
    await queue.repeatables.upsert("tick", repeat=RepeatPattern.every(50), key="tick", limit=2)
    await queue.repeatables.upsert("gone", repeat=RepeatPattern.every(3_600_000), key="gone")
    assert await queue.repeatables.pause("gone")
    assert await queue.repeatables.remove("gone")
    return jobs


async def _look(queue: Queue, job: Job) -> None:
    await queue.counts()
    for state in ("waiting", "active", "delayed", "dead"):
        await queue.jobs(state)
    assert await queue.get_job_result(job.id) == "alone"
    assert await queue.get_job_progress(job.id) == 50
    assert await queue.get_job_logs(job.id) == ["a line"]
    assert await queue.workers()
    assert [letter.name for letter in await queue.dlq.page()] == ["dies"]
    await queue.get_repeatable_jobs()
    await queue.get_job("the-only-one")
    assert 'chasquimq_queue_up{queue="a"} 1' in await QueueExporter([queue]).render()


async def test_each_role_does_all_of_its_work_and_is_refused_nothing(tenants: Tenants) -> None:
    options: dict[str, Any] = {"store_results": True, "retry": QUICK, "scheduler_tick_ms": 50}
    seen: set[str] = set()

    async def subscribe(events: QueueEvents) -> None:
        async for event in events:
            seen.add(event.name)

    async with (
        Queue("a", redis_url=tenants.url("producer")) as producer,
        Queue("a", redis_url=tenants.url("inspector")) as inspector,
        QueueEvents("a", redis_url=tenants.url("inspector"), block_ms=50) as events,
    ):
        subscribed = asyncio.create_task(subscribe(events))
        async with Worker("a", handle, redis_url=tenants.url("worker"), **options) as worker:
            async with asyncio.timeout(40):
                await worker.wait_until_idle()
            jobs = await _produce(producer)
            names = [await producer.wait_for_result(job.id, timeout=40) for job in jobs if job.name != "dies"]
            assert names == ["now", "again", "alone", "later", "only"]
            await eventually(lambda: {"completed", "dlq", "retry-scheduled"} <= seen)
            await _look(inspector, jobs[3])
            async with Queue("a", redis_url=tenants.url("operator")) as operator:
                await _look(operator, jobs[3])
        async with Queue("a", redis_url=tenants.url("operator")) as operator:
            await operator.pause()
            await operator.resume()
            assert await operator.dlq.replay() == 1
            assert await operator.purge("waiting") >= 1
            await operator.add("kept", delay_ms=3_600_000)
            assert await operator.purge("delayed") == 1
        await events.close()
        await subscribed
    assert tenants.refusals() == []


@pytest.mark.parametrize("role", ROLES)
async def test_no_role_does_what_it_must_not(tenants: Tenants, role: str) -> None:
    lines = {
        "producer": (*FORBIDDEN, *NOT_A_PRODUCERS),
        "worker": (*FORBIDDEN, *NOT_A_WORKERS),
        "inspector": (*FORBIDDEN, *NOT_AN_INSPECTORS),
        "operator": (*FORBIDDEN, *NOT_AN_OPERATORS),
    }
    answers = {line: await tenants.verdict(role, line, "{chasqui:a}:stream") for line in lines[role]}
    refusals = ("no permissions", "unknown command")  # Redis 6.2 knows no FUNCTION
    allowed = [line for line, said in answers.items() if not any(refusal in said.lower() for refusal in refusals)]
    assert allowed == []


@pytest.mark.parametrize("role", ROLES)
async def test_a_tenant_reaches_nothing_of_another(tenants: Tenants, role: str) -> None:
    tenants.server.execute("XADD", "{chasqui:b}:stream", "*", "d", "x")
    failures = {line: await tenants.verdict(role, line, "{chasqui:b}:stream") for line in FOREIGN}
    assert {line: said for line, said in failures.items() if "no permissions" not in said.lower()} == {}
    assert tenants.server.execute("XLEN", "{chasqui:b}:stream") == 1


@pytest.mark.parametrize("role", ("producer", "worker"))
@pytest.mark.parametrize("declared", ("{chasqui:b}:stream", "{chasqui:a}:stream"))
async def test_a_script_of_a_tenant_reaches_nothing_of_another(tenants: Tenants, role: str, declared: str) -> None:
    """Whether it names the key or not."""
    tenants.server.execute("SET", "{chasqui:b}:secret", "x")
    client = redis.asyncio.Redis.from_url(tenants.url(role))
    for command in ("'GET', '{chasqui:b}:secret'", "'DEL', '{chasqui:b}:secret'", "'FLUSHALL'", "'CONFIG', 'GET', '*'"):
        with pytest.raises(redis.exceptions.RedisError):
            await client.eval(f"return redis.call({command})", 1, declared)
    await client.aclose()
    assert tenants.server.execute("GET", "{chasqui:b}:secret") == b"x"


@pytest.mark.parametrize("role", ROLES)
async def test_a_queue_of_another_tenant_cannot_be_used(tenants: Tenants, role: str) -> None:
    async with Queue("b", redis_url=tenants.url(role), timeout_s=2.0) as queue:
        calls = {
            "add": queue.add("x"),
            "delayed": queue.add("x", delay_ms=5),
            "counts": queue.counts(),
            "jobs": queue.jobs("waiting"),
            "dlq": queue.dlq.page(),
            "purge": queue.purge("waiting"),
            "pause": queue.pause(),
            "repeatables": queue.get_repeatable_jobs(),
            "result": queue.get_job_result("x"),
        }
        found = await asyncio.gather(*calls.values(), return_exceptions=True)
    passed = {name: one for name, one in zip(calls, found, strict=True) if not isinstance(one, ChasquiError)}
    assert passed == {}
    assert tenants.server.execute("DBSIZE") == 0
    assert any(isinstance(one, ReplyError) and one.code == "NOPERM" for one in found)


def test_the_file_holds_the_users_for_the_newest_server() -> None:
    able = dict.fromkeys(NEWER, True)
    lines = [
        f"user chasqui-{role.name} off resetpass {' '.join(make_acl_rules(role, ['QUEUE'], able))}"
        for role in ALL_ROLES
    ]
    assert USERS.read_text().splitlines() == lines
