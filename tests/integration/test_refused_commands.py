"""Services that refuse or rename commands: jobs run where they possibly can, and else the error names the remedy.

The table of docs/how-to/managed-services.md says which is which.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pychasqui import (
    AuthenticationFailed,
    Job,
    NotRedis,
    Queue,
    QueueEvents,
    ReplyError,
    RetryPolicy,
    UnsafeServer,
    Worker,
)
from pychasqui._redis.connector import Connector
from pychasqui._redis.keys import Keys
from pychasqui.errors import ChasquiError
from tests.support.gate import Gate
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.waiting import eventually

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "managed-services.md").read_text()
ROW = re.compile(r"^\| (`[^|]+`) \|[^|]*\| (jobs run|jobs do not run|not used)[^|]*\|$", re.MULTILINE)
TABLE = {command: fate for names, fate in ROW.findall(PAGE) for command in re.findall(r"`([A-Z ]+)`", names)}
QUICK = RetryPolicy(initial_ms=5, jitter_ms=0)
UNKNOWN_TO_ACL = ("Unknown command", "Unknown subcommand")


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def url_without(server: RedisServer, *commands: str) -> str:
    """The URL of a user that may do everything but that."""
    server.execute("FLUSHALL")
    rules = [f"-{command.lower().replace(' ', '|')}" for command in commands]
    try:
        server.execute("ACL", "SETUSER", "limited", "reset", "on", ">pw", "~*", "&*", "+@all", *rules)
    except Exception as error:
        if any(text in str(error) for text in UNKNOWN_TO_ACL):
            pytest.skip(f"this server has no {commands}")
        raise
    return f"{server.url}?username=limited&password=pw"


def commands_of(server: RedisServer) -> set[str]:
    return {about[0].decode().upper() for about in server.ask("COMMAND")}


async def handle(job: Job) -> str:
    if job.name == "again" and job.attempt == 0:
        raise ValueError(job.id)
    return job.name


async def run_jobs(url: str) -> None:
    """Everything that a queue is for: adding in every way, retries, delays, results, events, a pause."""
    options: dict[str, Any] = {"store_results": True, "retry": QUICK, "read_block_ms": 200}
    async with (
        Queue("orders", redis_url=url) as queue,
        QueueEvents("orders", redis_url=url, block_ms=50),
        Worker("orders", handle, redis_url=url, **options),
    ):
        jobs = [await queue.add("alone"), await queue.add("later", delay_ms=5), await queue.add("again")]
        jobs += await queue.add_bulk([{"name": "some"}, {"name": "more"}])
        await queue.add_bulk({"name": "large", "data": b"x" * 20_000} for _ in range(100))
        assert [await queue.wait_for_result(job.id, timeout=30) for job in jobs] == [job.name for job in jobs]
        while (await queue.counts()).active or (await queue.counts()).waiting:
            await asyncio.sleep(0.01)
    async with Queue("acks", redis_url=url) as queue, Worker("acks", handle, redis_url=url, events_enabled=False):
        await queue.add_bulk([{"name": "some"}] * 10)
        while (await queue.counts()).active or (await queue.counts()).waiting:
            await asyncio.sleep(0.01)


# The rest is in the test behind it. No user can be refused HELLO, but it can be renamed.
@pytest.mark.parametrize("command", ("INFO", "CLIENT", "SUBSCRIBE", "XACKDEL", "MSETEX", "WATCH", "MULTI"))
async def test_jobs_run_without_it(guarded: RedisServer, command: str) -> None:
    await run_jobs(url_without(guarded, command))


async def test_jobs_run_without_all_of_them(guarded: RedisServer) -> None:
    known = commands_of(guarded)
    optional = [command for command, fate in TABLE.items() if fate != "jobs do not run"]
    # HELLO or INFO has to be there.
    await run_jobs(url_without(guarded, *(one for one in optional if one.partition(" ")[0] in known and one != "INFO")))


@pytest.mark.parametrize("command", [command for command, fate in TABLE.items() if fate == "jobs do not run"])
async def test_the_error_names_the_command_and_the_remedy(
    guarded: RedisServer, command: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of an add, or of a worker that starts; a worker that cannot read logs it, and keeps trying."""
    url = url_without(guarded, command)
    # Redis 7.0 does not name a command that a script is refused.
    named = re.compile(rf"(?i)('{command}'|executing the script can't run this command).*chasqui doctor --acl")
    try:
        async with Queue("orders", redis_url=url, timeout_s=2) as queue:
            await queue.add("alone")
            await queue.add_bulk([{"name": "some"}, {"name": "more"}])
            await queue.add("later", delay_ms=1)
        async with Worker("orders", handle, redis_url=url):
            await eventually(lambda: named.search(caplog.text) is not None)
    except ChasquiError as error:
        assert named.search(str(error)), error  # noqa: PT017  a worker that cannot read raises nothing


async def test_jobs_run_though_commands_were_renamed() -> None:
    renamed = [
        command for command, fate in TABLE.items() if fate == "jobs run" and " " not in command and command != "INFO"
    ]
    config: list[str] = []
    with RedisServer() as server:
        known = commands_of(server)
    for command in renamed:
        if command in known:
            config += ["--rename-command", command, f"SECRET-{command}"]
    with RedisServer(*config) as server:
        await run_jobs(server.url)


async def test_the_error_about_a_renamed_command_names_the_remedy() -> None:
    with RedisServer("--rename-command", "EVAL", "") as server:
        async with Queue("orders", redis_url=server.url) as queue:
            with pytest.raises(ReplyError, match=r"(?i)unknown command ['`]EVAL['`].*removed or renamed it"):
                await queue.add("later", delay_ms=5)


async def test_jobs_are_added_once_where_the_server_does_not_know_idmp(
    server: RedisServer, redis_url: str, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever version it says that it is: the server gets another word, and refuses it."""
    caplog.set_level("INFO", "chasqui.connection")
    async with (
        Proxy(redis_url, rewrite=lambda request: request.replace(b"$4\r\nIDMP\r\n", b"$4\r\nIDMX\r\n")) as proxy,
        Queue(queue_name, redis_url=proxy.url) as queue,
    ):
        await queue.counts()  # connects: the first add is alone
        for number in range(5):
            assert (await queue.add("send", number)).is_new
        await asyncio.gather(*(queue.add("send", number) for number in range(5)))
        assert await queue.purge("waiting") == 10
    is_known = proxy.count(b"IDMP") > 0  # the server has it
    assert proxy.count(b"IDMP") == is_known
    assert caplog.text.count("XADD with IDMP is refused, so a script adds in its place") == is_known


async def test_a_paused_queue_runs_nothing_where_client_unblock_is_refused(guarded: RedisServer) -> None:
    """The connection of the read is closed in its place, and nothing is warned about."""
    url, gate = url_without(guarded, "CLIENT"), Gate()
    gate.opened.set()
    async with Queue("orders", redis_url=url) as queue, Worker("orders", gate, redis_url=url, read_block_ms=60_000):
        await queue.add("count", 0)
        await eventually(lambda: gate.finished == [0])
        await queue.pause()
        await eventually(lambda: guarded.execute("INFO", "clients")["blocked_clients"] == 0)
        await queue.add("count", 1)
        await asyncio.sleep(0.2)
        assert gate.finished == [0]
        await queue.resume()
        await eventually(lambda: gate.finished == [0, 1])


async def test_a_strict_worker_does_not_start_where_info_is_refused(guarded: RedisServer) -> None:
    with pytest.raises(UnsafeServer, match=r"INFO is refused.*chasqui doctor --acl"):
        async with Worker("orders", handle, redis_url=url_without(guarded, "INFO"), strict=True):
            pass


async def test_a_service_without_hello_and_info_is_not_taken_for_redis() -> None:
    with RedisServer("--rename-command", "HELLO", "", "--rename-command", "INFO", "") as server:
        async with Queue("orders", redis_url=server.url) as queue:
            with pytest.raises(NotRedis, match=r"knows neither HELLO nor INFO.*removed or renamed it"):
                await queue.add("alone")


async def test_a_node_of_a_cluster_that_refuses_hello_is_recognized() -> None:
    """Valkey names the field of INFO otherwise than Redis does."""
    with RedisServer("--cluster-enabled", "yes", "--rename-command", "HELLO", "") as server:
        calls = Connector(server.url, tls=False, client_name="chasqui-test").make_broker(Keys("orders"), timeout_s=5)
        try:
            await calls.call("PING")
            assert calls.is_in_cluster
        finally:
            await calls.close()


async def test_the_error_about_select_says_what_needs_it(guarded: RedisServer) -> None:
    async with Queue("orders", redis_url=f"{url_without(guarded, 'SELECT')}&db=1") as queue:
        with pytest.raises(AuthenticationFailed, match="refuses SELECT, which a database other than 0 needs"):
            await queue.add("alone")


async def test_the_error_about_wait_names_the_command(guarded: RedisServer) -> None:
    async with Queue("orders", redis_url=url_without(guarded, "WAIT")) as queue:
        with pytest.raises(ChasquiError, match=r"'wait' command.*chasqui doctor --acl"):
            await queue.add("alone", wait_replicas=1)
