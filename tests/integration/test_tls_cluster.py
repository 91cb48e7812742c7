"""A cluster whose nodes announce host names and talk TLS alone: to clients, to each other and while slots move."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pychasqui import ConnectionLost, Queue
from pychasqui._redis.topology.node_map import compute_slot_of_key
from tests.support.cluster import ClusterServers
from tests.support.server import RedisServer
from tests.support.tls_cluster import CLIENT, TRUST, TlsClusterServers, TlsNode
from tests.support.traffic import Traffic


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterServers]:
    servers = TlsClusterServers()
    try:
        with servers as cluster:
            yield cluster
    except RuntimeError as error:
        if "Bad directive" in str(error):
            pytest.skip("this server was built without TLS")
        raise


def url(node: RedisServer, *options: str) -> str:
    """Of one node, by its address; it announces the others by name."""
    return f"rediss+cluster://127.0.0.1:{node.port}?{'&'.join((TRUST, CLIENT, *options))}"


async def test_jobs_run_while_a_slot_moves(cluster: ClusterServers) -> None:
    await asyncio.to_thread(cluster.wait_until_well)
    name = cluster.queue_name(0)
    slot = compute_slot_of_key(f"{{chasqui:{name}}}")
    async with Traffic(name, url(cluster.nodes[2])) as traffic:
        assert traffic.queue._get_or_open_loop_session().broker.server_address == f"localhost:{cluster.nodes[0].port}"
        await asyncio.to_thread(cluster.move_slot, slot, cluster.nodes[1])
        await traffic.flow()
        await traffic.end()
        assert traffic.queue._get_or_open_loop_session().broker.server_address == f"localhost:{cluster.nodes[1].port}"
    assert (traffic.twice, traffic.refused) == (set(), {})


async def test_a_node_whose_certificate_is_for_another_host_is_refused(cluster: ClusterServers) -> None:
    """The error says what to do, and queues of other nodes go on."""
    await asyncio.to_thread(cluster.wait_until_well)
    node = cluster.nodes[1]
    assert isinstance(node, TlsNode)
    node.show("elsewhere")
    here, there = cluster.queue_name(2), cluster.queue_name(1)
    seed = cluster.nodes[2]
    try:
        async with (
            Queue(here, redis_url=url(seed)) as reached,
            Queue(there, redis_url=url(seed), timeout_s=2) as refused,
            Queue(there, redis_url=url(node, "ssl_server_hostname=redis.example.org")) as named,
        ):
            with pytest.raises(ConnectionLost, match=r"not valid for 'localhost'.*connect by a name that it has"):
                await refused.add("send")
            assert (await reached.add("send")).is_new
            assert (await named.add("send")).is_new
    finally:
        node.show("here")


async def test_a_seed_whose_certificate_is_for_another_host_is_named_with_the_remedy(cluster: ClusterServers) -> None:
    seed = url(cluster.nodes[2], "ssl_server_hostname=other.example.org")
    async with Queue("orders", redis_url=seed, timeout_s=1.5) as queue:
        with pytest.raises(
            ConnectionLost, match=f"no node of the cluster answers .127.0.0.1:{cluster.nodes[2].port}"
        ) as lost:
            await queue.add("send")
    assert str(lost.value).count("the certificate is for another host; connect by a name that it has") == 1
    assert "check the addresses" not in str(lost.value)
