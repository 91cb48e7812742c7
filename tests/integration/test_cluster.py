"""A queue in a Redis Cluster: failovers, slots that move, and URLs that lead to the wrong node."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from time import monotonic

import pytest

from pychasqui import Job, Queue, Worker
from pychasqui._redis.keys import REGISTRY
from pychasqui._redis.topology.node_map import compute_slot_of_key
from pychasqui.doctor import Doctor, Finding
from pychasqui.errors import AddUnknown, RedisTrouble
from pychasqui.queues import Queues
from tests.support.cluster import ClusterServers
from tests.support.sentinels import is_in_sync
from tests.support.server import RedisServer
from tests.support.traffic import Traffic
from tests.support.waiting import eventually
from tests.support.worker_parts import heeds_pause

SLACK_S = 4.0  # the bounds of the guide are for a machine that is not busy


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterServers]:
    with ClusterServers() as cluster:
        yield cluster


def slot(queue_name: str) -> int:
    return compute_slot_of_key(f"{{chasqui:{queue_name}}}")


@pytest.mark.parametrize("is_node", (False, True), ids=("cluster", "any node"))
async def test_jobs_run_once_while_a_slot_moves_and_its_master_changes(cluster: ClusterServers, is_node: bool) -> None:
    """Of a URL of a single node the queue is at another."""
    await asyncio.to_thread(cluster.wait_until_well)
    name = cluster.queue_name(0)
    url = f"redis://127.0.0.1:{cluster.nodes[2].port}" if is_node else cluster.url
    async with Traffic(name, url) as traffic:
        start = monotonic()
        await asyncio.to_thread(cluster.fail_over)
        await traffic.flow()
        await asyncio.to_thread(cluster.move_slot, slot(name), cluster.nodes[1])
        await traffic.flow()
        assert cluster.master_of(slot(name)) is cluster.nodes[1]
        await traffic.end()
        assert traffic.gap_s(start) < SLACK_S
    assert (traffic.twice, traffic.refused) == (set(), {})


async def test_a_slot_that_stays_open_stops_adds_until_it_is_closed_and_no_refused_add_runs(
    cluster: ClusterServers,
) -> None:
    await asyncio.to_thread(cluster.wait_until_well)
    name = cluster.queue_name(2)
    here, there = cluster.nodes[2], cluster.nodes[1]
    async with Traffic(name, cluster.url, timeout_s=0.3) as traffic:
        there.execute("CLUSTER", "SETSLOT", slot(name), "IMPORTING", cluster.id_of(here))
        here.execute("CLUSTER", "SETSLOT", slot(name), "MIGRATING", cluster.id_of(there))
        await eventually(lambda: len(traffic.refused) > 1)
        found = await findings(cluster.url)
        assert found["open slots"].level == "warning"
        assert f"{slot(name)} to {cluster.id_of(there)[:8]}" in found["open slots"].text
        there.execute("CLUSTER", "SETSLOT", slot(name), "STABLE")
        here.execute("CLUSTER", "SETSLOT", slot(name), "STABLE")
        await traffic.flow()
        await traffic.end()
    assert traffic.twice == traffic.wrongly_refused == set()


async def test_an_atomic_migration_of_a_slot_loses_nothing(cluster: ClusterServers) -> None:
    await asyncio.to_thread(cluster.wait_until_well)
    name = cluster.queue_name(1)
    here, there = cluster.nodes[1], cluster.nodes[2]
    async with Traffic(name, cluster.url) as traffic:
        start = monotonic()
        if not cluster.migrate_at_once(slot(name), here, there):
            pytest.skip("this server moves slots key by key")
        await eventually(lambda: cluster.master_of(slot(name)) is there, timeout=30)
        await traffic.flow()
        await traffic.end()
        assert traffic.gap_s(start) < SLACK_S
    assert (traffic.twice, traffic.refused) == (set(), {})


async def findings(url: str, timeout_s: float = 10) -> dict[str, Finding]:
    async with Doctor(url, timeout_s=timeout_s) as doctor:
        return {found.check: found for found in await doctor.examine_server()}


async def test_the_doctor_shows_masters_and_slots(cluster: ClusterServers) -> None:
    await asyncio.to_thread(cluster.wait_until_well)
    found = await findings(cluster.url)
    assert found["cluster"].level == "ok"
    assert found["cluster"].text == "3 masters of 4 nodes have 16,384 of 16,384 slots"
    for node in cluster.nodes:
        is_shown = f"127.0.0.1:{node.port} has 5," in found["masters"].text
        assert is_shown == (cluster.role(node) == "master")
    assert found["masters"].text.count("1 replica") == 1
    assert found["replicas"].text.startswith("1 of 1 replicas are online")
    assert "CONFIG SET min-replicas-to-write 1" in found["min-replicas-to-write"].remedy
    assert "open slots" not in found


async def test_the_doctor_finds_a_replica_that_is_away_whichever_master_it_follows(cluster: ClusterServers) -> None:
    await asyncio.to_thread(cluster.wait_until_well)
    replica = next(node for node in cluster.nodes if cluster.role(node) == "slave")
    master = next(node for node in (cluster.nodes[0], cluster.nodes[3]) if node is not replica)
    replica.kill()
    try:
        await eventually(lambda: b"connected_slaves:0" in master.ask("INFO", "replication"))
        for node in cluster.nodes[1:3]:  # one of them is asked first, the replica follows another
            found = await findings(f"redis://127.0.0.1:{node.port}")
            assert found["replicas"].level == "warning"
            assert "0 of 1 replicas are online" in found["replicas"].text
            assert f"127.0.0.1:{master.port}" in found["replicas"].text
            assert f"(127.0.0.1:{replica.port} is " in found["replicas away"].text
            assert f"0 of 1 replicas of 127.0.0.1:{master.port} follow their master" in found["replicas away"].text
    finally:
        replica.start()
        await asyncio.to_thread(cluster.wait_until_well)


async def test_queues_on_other_nodes_are_found_and_read(cluster: ClusterServers) -> None:
    await asyncio.to_thread(cluster.wait_until_well)
    names = [cluster.queue_name(share) for share in range(3)]
    for name in names:
        async with Queue(name, redis_url=cluster.url) as queue:
            await queue.add_bulk([{"name": "run", "data": number} for number in range(3)])
    async with Queues(cluster.url) as queues:
        found = await queues.find_names(within_s=5)
        assert set(names) <= set(found.names)
        assert [one.waiting for one in await queues.overview(names)] == [3, 3, 3]
        assert max(len(connections(node, b"chasqui-queues")) for node in cluster.nodes) == 1


async def test_queues_of_a_process_have_one_connection_to_each_node(cluster: ClusterServers) -> None:
    """A slot that moves ends no connection: its queue goes over to that of the other node."""
    await asyncio.to_thread(cluster.wait_until_well)
    names = [cluster.queue_name(share) for share in (0, 1, 2) for _ in range(34)]
    async with AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(Queue(name, redis_url=cluster.url)) for name in names]
        for _ in range(2):
            await asyncio.gather(*(queue.add("run") for queue in queues))
        before = [connections(node, b"chasqui-queue-") for node in cluster.nodes]
        assert sorted(map(len, before)) == [0, 1, 1, 1]
        await asyncio.to_thread(cluster.move_slot, slot(names[-1]), cluster.nodes[1])
        await asyncio.gather(*(queue.add("run") for queue in queues for _ in range(5)))
        assert [connections(node, b"chasqui-queue-") for node in cluster.nodes] == before
        assert [(await queue.counts()).waiting for queue in queues] == [7] * 102


async def test_messages_stay_at_the_node_of_the_queue_and_come_after_its_slot_has_moved(
    cluster: ClusterServers,
) -> None:
    """The lease is so long that no renewal looks: only messages say that the queue is paused, or a job cancelled."""
    await asyncio.to_thread(cluster.wait_until_well)
    name, (here, there) = cluster.queue_name(2), cluster.nodes[2:0:-1]
    if here.version < (7, 0, 0):
        pytest.skip("this server has no shard channels")
    plain, running = messages_of(cluster, "publish"), list[str]()

    async def run(job: Job) -> None:
        running.append(job.id)
        try:
            await asyncio.sleep(600)
        finally:
            running.remove(job.id)

    async def heed_messages(node: RedisServer) -> None:
        await eventually(lambda: subscribers(node, f"{{chasqui:{name}}}:shard:pause") == 1)
        await eventually(lambda: subscribers(node, f"{{chasqui:{name}}}:shard:due") == 1)
        await queue.pause()
        await eventually(lambda: heeds_pause(worker))
        await queue.resume()
        await eventually(lambda: not heeds_pause(worker))
        job = await queue.add("run")
        await eventually(lambda: running == [job.id])
        await queue.cancel(job.id)
        await eventually(lambda: not running)
        late = await queue.add("run", delay_ms=1)
        await eventually(lambda: running == [late.id])
        await queue.cancel(late.id)

    async with (
        Queue(name, redis_url=cluster.url) as queue,
        Worker(name, run, redis_url=cluster.url, lease_ms=600_000) as worker,
    ):
        await heed_messages(here)
        await asyncio.to_thread(cluster.move_slot, slot(name), there)
        await heed_messages(there)
    assert messages_of(cluster, "spublish") >= 8
    assert messages_of(cluster, "publish") == plain


def subscribers(node: RedisServer, channel: str) -> int:
    return int(node.ask("PUBSUB", "SHARDNUMSUB", channel)[1])


def messages_of(cluster: ClusterServers, command: str) -> int:
    """How often it was called, on any node."""
    stats = b"".join(node.ask("INFO", "commandstats") for node in cluster.nodes).decode()
    return sum(map(int, re.findall(rf"cmdstat_{command}:calls=(\d+)", stats)))


def connections(node: RedisServer, name: bytes) -> list[bytes]:
    """The numbers of the connections at a node whose names begin so."""
    lines = node.ask("CLIENT", "LIST").splitlines()
    return [line.split()[0] for line in lines if b" name=" + name in line]


async def test_the_documented_rights_are_enough(cluster: ClusterServers) -> None:
    await asyncio.to_thread(cluster.wait_until_well)
    name = cluster.queue_name(0)
    async with Doctor(cluster.url) as doctor:
        users = {user.role: user for user in await doctor.acl_users(name)}
    rights = [rule for rule in users["worker"].rules if rule.startswith("+")]
    for node in cluster.nodes:
        node.execute("ACL", "SETUSER", "few", "on", ">word", *users["operator"].rules, *rights)
        node.execute("ACL", "LOG", "RESET")
    try:
        async with Traffic(name, cluster.url.replace("://", "://few:word@")) as traffic:
            await asyncio.to_thread(cluster.fail_over)
            await traffic.flow()
            await traffic.end()
        assert (traffic.twice, traffic.refused) == (set(), {})
        log = [entry for node in cluster.nodes for entry in node.execute("ACL", "LOG")]
        assert [entry for entry in log if entry[b"object"] != REGISTRY.encode()] == []  # which Redis 6.2 shows
    finally:
        for node in cluster.nodes:
            node.execute("ACL", "DELUSER", "few")


class TestWrongUrls:
    async def refused(self, url: str, timeout_s: float = 10, name: str = "orders") -> str:
        async with Queue(name, redis_url=url, timeout_s=timeout_s) as queue:
            with pytest.raises(RedisTrouble) as refusal:
                await queue.add("run")
        assert not isinstance(refusal.value, AddUnknown)
        return str(refusal.value)

    async def test_a_list_in_which_no_node_answers(self) -> None:
        said = await self.refused("redis+cluster://127.0.0.1:1,127.0.0.1:2", timeout_s=1.5)
        assert "no node of the cluster answers (127.0.0.1:1: " in said
        assert said.count("nothing listens there") == 2
        assert said.endswith("check the addresses in redis_url")

    @pytest.mark.needs_all_rights("users of a server that is no node may not ask for its slots")
    async def test_a_server_that_is_no_node(self, server: RedisServer) -> None:
        said = await self.refused(f"redis+cluster://127.0.0.1:{server.port}")
        assert f"is no node of a cluster: use redis://127.0.0.1:{server.port}" in said

    @pytest.mark.parametrize("scheme", ("redis", "redis+cluster"))
    async def test_a_cluster_without_slots(self, scheme: str) -> None:
        with RedisServer("--cluster-enabled", "yes", tcp=True) as node:
            said = await self.refused(f"{scheme}://127.0.0.1:{node.port}", timeout_s=1)
        assert "the cluster is down or not complete (redis-cli --cluster check" in said

    async def test_a_database_of_a_node(self, cluster: ClusterServers) -> None:
        said = await self.refused(f"redis://127.0.0.1:{cluster.nodes[0].port}/1")
        has_databases = cluster.nodes[0].product == "Valkey"
        assert ("DB index" if has_databases else "a cluster has no databases but 0: remove the number") in said

    async def test_a_cluster_that_has_lost_a_master(self, cluster: ClusterServers) -> None:
        await asyncio.to_thread(cluster.wait_until_well)
        alive, dead = cluster.queue_name(2), cluster.queue_name(1)
        cluster.nodes[1].kill()
        try:
            await eventually(lambda: b"cluster_state:fail" in cluster.nodes[2].ask("CLUSTER", "INFO"))
            said = await self.refused(cluster.url, timeout_s=1, name=alive)
            assert "CLUSTERDOWN" in said
            assert "some slots have no master, and redis-cli --cluster check shows which" in said
            said = await self.refused(cluster.url, timeout_s=1, name=dead)
            assert "this node has the slot of the queue, and no replica has taken over: start it again" in said
            found = await findings(cluster.url, timeout_s=2)
            assert found["cluster"].level == found["silent masters"].level == "problem"
            assert f"127.0.0.1:{cluster.nodes[1].port} does not answer" in found["silent masters"].text
        finally:
            cluster.nodes[1].start()
            await asyncio.to_thread(cluster.wait_until_well)

    async def test_a_replica(self, server: RedisServer) -> None:
        with RedisServer(tcp=True) as replica:
            replica.execute("REPLICAOF", "127.0.0.1", server.port)
            await eventually(lambda: is_in_sync(replica))
            said = await self.refused(replica.tcp_url, timeout_s=1)
        assert "is a replica, which accepts no writes (READONLY): use the address of its master" in said


async def test_jobs_run_after_a_master_is_killed(cluster: ClusterServers) -> None:
    await asyncio.to_thread(cluster.wait_until_well)
    name = cluster.queue_name(0)
    master = cluster.master_of(slot(name))
    async with Traffic(name, cluster.url) as traffic:
        await traffic.rest()  # what the replica has not got yet would be lost: see wait_replicas
        await asyncio.to_thread(master.kill)
        traffic.go_on()
        await traffic.flow()
        await traffic.end()
    await eventually(lambda: cluster.master_of(slot(name)) is not master)
    master.start()
    assert (traffic.twice, traffic.refused) == (set(), {})
