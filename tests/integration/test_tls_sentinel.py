"""A master, its replica and a Sentinel that announce host names and talk TLS alone, to clients and to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pychasqui import Queue, RedisTrouble
from tests.support.cluster import wait
from tests.support.sentinels import DOWN_AFTER_MS, MASTER_NAME, SERVER_CONFIG, SentinelServer, is_in_sync
from tests.support.tls_cluster import CLIENT, TRUST, TlsNode, tls_options
from tests.support.traffic import Traffic
from tests.support.waiting import eventually


class TlsSentinel(SentinelServer):
    def _command_line(self) -> list[str]:
        return [*super()._command_line(), *tls_options(self.port)]


class TlsSentinelServers:
    """servers[0] is the master at first, the other its replica."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        enter, config = self._stack.enter_context, (*SERVER_CONFIG, "--replica-announce-ip", "localhost")
        self.servers = [enter(TlsNode(*config, tcp=True)) for _ in range(2)]
        self.servers[1].execute("REPLICAOF", "localhost", self.servers[0].port)
        wait(lambda: is_in_sync(self.servers[1]), "the replica is not in sync")
        self.sentinel = enter(
            TlsSentinel(
                *("sentinel resolve-hostnames yes", "sentinel announce-hostnames yes"),
                f"sentinel monitor {MASTER_NAME} localhost {self.servers[0].port} 1",
                f"sentinel down-after-milliseconds {MASTER_NAME} {DOWN_AFTER_MS}",
            )
        )
        wait(lambda: len(self.sentinel.ask("SENTINEL", "REPLICAS", MASTER_NAME)) == 1, "no replica is found")

    def close(self) -> None:
        self._stack.close()

    def url(self, *options: str, scheme: str = "rediss+sentinel") -> str:
        tls = (TRUST, CLIENT) if scheme.startswith("rediss") else ()
        return f"{scheme}://127.0.0.1:{self.sentinel.port}/{MASTER_NAME}?{'&'.join((*tls, *options))}"

    @property
    def master(self) -> TlsNode:
        port = int(self.sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME)[1])
        return next(server for server in self.servers if server.port == port)


@pytest.fixture(scope="module")
def sentinels() -> Iterator[TlsSentinelServers]:
    try:
        servers = TlsSentinelServers()
    except RuntimeError as error:
        if "Bad directive" in str(error):
            pytest.skip("this server was built without TLS")
        raise
    try:
        yield servers
    finally:
        servers.close()


async def test_jobs_run_through_a_failover(
    sentinels: TlsSentinelServers, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="chasqui.connection")
    before = sentinels.master
    async with Traffic(queue_name, sentinels.url()) as traffic:
        assert traffic.queue._get_or_open_loop_session().broker.server_address == f"localhost:{before.port}"
        await traffic.rest()
        sentinels.sentinel.execute("SENTINEL", "FAILOVER", MASTER_NAME)
        await asyncio.to_thread(wait, lambda: sentinels.master is not before, "no replica takes over")
        await eventually(lambda: f"localhost:{sentinels.master.port} is the master now" in caplog.text)
        await asyncio.sleep(0.2)  # the connections hear of it a turn of the loop later
        traffic.go_on()
        await traffic.flow()
        await traffic.end()
        after = traffic.queue._get_or_open_loop_session().broker.server_address
        assert after == f"localhost:{sentinels.master.port}"
    assert (traffic.twice, traffic.refused) == (set(), {})


async def refused(url: str) -> str:
    async with Queue("orders", redis_url=url, timeout_s=2) as queue:
        with pytest.raises(RedisTrouble) as refusal:
            await queue.add("send")
    return str(refusal.value)


async def test_a_master_whose_certificate_is_for_another_host_is_refused(sentinels: TlsSentinelServers) -> None:
    master = sentinels.master
    master.show("elsewhere")
    try:
        said = await refused(sentinels.url())
    finally:
        master.show("here")
    assert "not valid for 'localhost'" in said
    assert "connect by a name that it has" in said


async def test_a_sentinel_whose_certificate_is_for_another_host_is_refused(sentinels: TlsSentinelServers) -> None:
    said = await refused(sentinels.url("ssl_server_hostname=other.example.org"))
    assert f"no Sentinel answers (127.0.0.1:{sentinels.sentinel.port}: " in said
    assert "the certificate is for another host; connect by a name that it has" in said


async def test_a_url_without_tls_is_answered_with_the_scheme_to_use(sentinels: TlsSentinelServers) -> None:
    assert "use rediss" in await refused(sentinels.url(scheme="redis+sentinel"))
