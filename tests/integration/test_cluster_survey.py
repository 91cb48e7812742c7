"""What is asked of a cluster's nodes when the map changes, with a node that says what the test wants."""

from __future__ import annotations

import asyncio

import pytest

from pychasqui import Queue
from pychasqui._redis.connector import Connector
from pychasqui._redis.endpoint import parse_location
from pychasqui._redis.topology import cluster as surveys
from pychasqui._redis.topology import node_connections
from pychasqui._redis.topology.cluster import ClusterSurvey
from pychasqui._redis.topology.node_map import Address
from pychasqui.errors import ConnectionLost
from tests.support.fake_server import FakeServer
from tests.support.server import unused_port
from tests.support.waiting import eventually


def bulk(text: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text.encode())


class FakeNode(FakeServer):
    """The only master of a cluster, with a replica at a port where nothing listens."""

    def __init__(self) -> None:
        super().__init__(self._answer_as_node)
        self.replica_port = unused_port()
        self.epoch = 1
        self.has_slots = True
        self.announced: Address | None = None  # its own, as CLUSTER SLOTS has it
        self.refusals: list[bytes] = []  # of the next commands that are about data

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def cluster_url(self) -> str:
        return self.url.replace("redis://", "redis+cluster://")

    def _answer_as_node(self, command: list[bytes]) -> bytes:
        match [word.upper() for word in command[:2]]:
            case [b"HELLO", *_]:
                fields = (
                    "server",
                    "redis",
                    "version",
                    "7.4.0",
                    "proto",
                    "2",
                    "id",
                    "1",
                    "mode",
                    "cluster",
                    "role",
                    "master",
                )
                return b"*%d\r\n" % len(fields) + b"".join(map(bulk, fields))
            case [b"CLUSTER", b"SLOTS"] if not self.has_slots:
                return b"*0\r\n"
            case [b"CLUSTER", b"SLOTS"]:
                here = self.announced or Address("127.0.0.1", self.port)
                known = (here, Address("127.0.0.1", self.replica_port))
                nodes = (bulk(each.host) + b":%d\r\n" % each.port for each in known)
                return b"*1\r\n*4\r\n:0\r\n:16383\r\n" + b"".join(b"*2\r\n" + node for node in nodes)
            case [b"CLUSTER", b"INFO"]:
                return bulk(f"cluster_current_epoch:{self.epoch}\r\n")
            case [b"GET", *_] if self.refusals:
                return self.refusals.pop()
        return b"+OK\r\n"


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_connections, "ASK_S", 0.05)
    monkeypatch.setattr(surveys, "OLDER_S", 0.1)


async def test_nodes_that_have_left_the_cluster_are_let_go() -> None:
    async with FakeNode() as node:
        survey = ClusterSurvey(parse_location(node.cluster_url), lambda: None)
        node_map = None
        for node.epoch in range(1, 5):
            node.replica_port = unused_port()
            node_map = await survey.find_changed_map_or_return_known(node_map, {1}, is_suspicious=True)
        tasks = {task for task in asyncio.all_tasks() if task.get_name() == "chasqui connect" and not task.done()}
        await survey.close()
    assert len(tasks) <= 1


async def test_a_node_that_no_other_node_knows_is_given_up() -> None:
    async with FakeNode() as node:
        connection = Connector(node.cluster_url, tls=False, client_name="chasqui-test").make_connection(timeout_s=10)
        node.refusals.append(b"-MOVED 0 127.0.0.1:%d\r\n" % unused_port())
        try:
            assert await connection.call("GET", "key") == b"OK"
        finally:
            await connection.close()
        assert not node.refusals


async def test_a_node_that_was_removed_from_the_cluster_and_still_runs_hides_no_slots() -> None:
    """CLUSTER RESET leaves it the epoch of the cluster, and the URL may name it still."""
    async with FakeNode() as one, FakeNode() as other:
        removed, node = sorted((one, other), key=lambda each: each.port)  # it is asked first
        removed.has_slots = False
        survey = ClusterSurvey(parse_location(f"{removed.cluster_url},127.0.0.1:{node.port}"), lambda: None)
        try:
            node_map = None
            for _ in range(10):  # those that are asked are drawn by lot
                node_map = await survey.find_changed_map_or_return_known(node_map, {1}, is_suspicious=True)
                assert node_map.find_owner(1) == ("127.0.0.1", node.port)
        finally:
            await survey.close()


async def test_a_cluster_of_which_all_nodes_have_lost_their_slots_is_believed_after_a_while() -> None:
    async with FakeNode() as node:
        survey = ClusterSurvey(parse_location(node.cluster_url), lambda: None)
        try:
            known = await survey.find_changed_map_or_return_known(None, {1}, is_suspicious=True)
            node.has_slots = False
            assert await survey.find_changed_map_or_return_known(known, {1}, is_suspicious=True) is known

            async def has_no_owner() -> bool:
                found = await survey.find_changed_map_or_return_known(known, {1}, is_suspicious=True)
                return found.find_owner(1) is None

            await eventually(has_no_owner)
        finally:
            await survey.close()


async def test_one_answer_of_a_removed_node_does_not_hide_slots_that_were_known_for_long() -> None:
    async with FakeNode() as node:
        survey = ClusterSurvey(parse_location(node.cluster_url), lambda: None)
        try:
            known = await survey.find_changed_map_or_return_known(None, {1}, is_suspicious=True)
            await asyncio.sleep(2 * surveys.OLDER_S)
            node.has_slots = False
            assert await survey.find_changed_map_or_return_known(known, {1}, is_suspicious=True) is known
        finally:
            await survey.close()


async def test_an_answer_without_slots_has_the_nodes_asked_again_soon() -> None:
    """Else the next one, half a minute later, would be taken for the end of a long time without slots."""
    async with FakeNode() as node:
        survey = ClusterSurvey(parse_location(node.cluster_url), lambda: None)
        try:
            known = await survey.find_changed_map_or_return_known(None, {1}, is_suspicious=False)
            node.has_slots = False
            assert await survey.find_changed_map_or_return_known(known, {1}, is_suspicious=False) is known
            node.has_slots = True
            assert await survey.find_changed_map_or_return_known(known, {1}, is_suspicious=False) is known
            await asyncio.sleep(2 * surveys.OLDER_S)
            node.has_slots = False
            assert await survey.find_changed_map_or_return_known(known, {1}, is_suspicious=True) is known
        finally:
            await survey.close()


async def test_a_cluster_is_found_again_by_nodes_that_the_url_does_not_name() -> None:
    """The node that the URL names was removed, and for a while it alone answers."""
    async with FakeNode() as named, FakeNode() as node:
        named.announced = Address("127.0.0.1", node.port)
        survey = ClusterSurvey(parse_location(named.cluster_url), lambda: None)
        try:
            known = await survey.find_changed_map_or_return_known(None, {1}, is_suspicious=True)
            named.has_slots = node.has_slots = False
            lost = known
            while lost.find_owner(1) is not None:
                lost = await survey.find_changed_map_or_return_known(lost, {1}, is_suspicious=True)
            lost = await survey.find_changed_map_or_return_known(lost, {1}, is_suspicious=True)
            node.has_slots = True
            found = await survey.find_changed_map_or_return_known(lost, {1}, is_suspicious=True)
            assert found.find_owner(1) == ("127.0.0.1", node.port)
        finally:
            await survey.close()


async def test_a_slot_that_moved_to_a_node_without_a_name_is_where_the_other_nodes_say() -> None:
    """A node that should be called by a name and has none yet is ?, not where the node is that said so."""
    async with FakeNode() as node:
        connection = Connector(node.cluster_url, tls=False, client_name="chasqui-test").make_connection(timeout_s=10)
        async with FakeServer() as wrong:
            node.refusals.append(b"-MOVED 0 ?:%s\r\n" % wrong.url.rpartition(":")[2].encode())
            try:
                assert await connection.call("GET", "key") == b"OK"
            finally:
                await connection.close()
        assert wrong.accepted == 0


class TestAnnouncedAddresses:
    async def refused(self, announced: Address) -> str:
        async with FakeNode() as node:
            node.announced = announced
            async with Queue("orders", redis_url=node.cluster_url, timeout_s=1) as queue:
                with pytest.raises(ConnectionLost) as refusal:
                    await queue.add("run")
        return str(refusal.value)

    async def test_a_name_that_is_not_known_here_is_shown(self) -> None:
        said = await self.refused(Address("redis-3.invalid", 7000))
        assert "redis-3.invalid:7000, which the nodes announce: " in said
        assert said.endswith("no such host is known; make the name known here")

    async def test_an_address_that_does_not_answer_is_shown(self) -> None:
        async with FakeServer() as silent:
            port = int(silent.url.rpartition(":")[2])
            assert f"127.0.0.1:{port}, which the nodes announce: " in await self.refused(Address("127.0.0.1", port))
