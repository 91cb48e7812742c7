"""What is asked of a cluster's nodes when the map changes, with a node that says what the test wants."""

from __future__ import annotations

import asyncio

import pytest

from pychasqui._redis.connector import Connector
from pychasqui._redis.endpoint import parse_location
from pychasqui._redis.topology import cluster as surveys
from pychasqui._redis.topology import node_connections
from pychasqui._redis.topology.cluster import ClusterSurvey
from tests.support.fake_server import FakeServer
from tests.support.server import unused_port


def bulk(text: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text.encode())


class FakeNode(FakeServer):
    """The only master of a cluster, with a replica at a port where nothing listens."""

    def __init__(self) -> None:
        super().__init__(self._answer_as_node)
        self.replica_port = unused_port()
        self.epoch = 1
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
            case [b"CLUSTER", b"SLOTS"]:
                nodes = (bulk("127.0.0.1") + b":%d\r\n" % port for port in (self.port, self.replica_port))
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
