"""A Redis Cluster of the tests' own: three masters, the first of which has a replica, on loopback ports."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import redis

from pychasqui._redis.topology.node_map import compute_slot_of_key
from tests.support.server import RedisServer

NODE_TIMEOUT_MS = 1000
MASTERS = 3
PATIENCE_S = 50
MEETING_S = 3.0
CONFIG = (
    *("--cluster-enabled", "yes"),
    *("--cluster-node-timeout", str(NODE_TIMEOUT_MS)),
    *("--cluster-replica-validity-factor", "0"),
)
SHARES = ((0, 5460), (5461, 10922), (10923, 16383))


class ClusterServers:
    """start() makes the cluster; nodes[0] to nodes[2] are masters at first, nodes[3] is the replica of nodes[0]."""

    def __init__(self, kind: type[RedisServer] = RedisServer, *config: str) -> None:
        self._stack = ExitStack()
        self._kind = kind
        self._config = (*CONFIG, *config)
        self.nodes: list[RedisServer] = []

    def __enter__(self) -> Self:
        self.nodes = [self._stack.enter_context(self._kind(*self._config, tcp=True)) for _ in range(MASTERS + 1)]
        for number, node in enumerate(self.nodes[:MASTERS]):
            first, last = SHARES[number]
            node.execute("CLUSTER", "ADDSLOTS", *range(first, last + 1))
            node.execute("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        wait(self._have_met, "the nodes do not find each other")
        self.nodes[3].execute("CLUSTER", "REPLICATE", self.id_of(self.nodes[0]))
        wait(self.is_well, "the cluster is not ready")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}"

    def queue_name(self, share: int = 0) -> str:
        """A queue that the first master has, or another."""
        first, last = SHARES[share]
        names = (f"q{number}-{time.monotonic_ns()}" for number in range(1000))
        return next(name for name in names if first <= compute_slot_of_key(f"{{chasqui:{name}}}") <= last)

    def id_of(self, node: RedisServer) -> str:
        found: str = node.execute("CLUSTER", "MYID").decode()
        return found

    def role(self, node: RedisServer) -> str:
        found: str = node.execute("ROLE")[0].decode()
        return found

    def master_of(self, slot: int) -> RedisServer:
        """Who has the slot, as most of the living nodes say."""
        for node in self.nodes:
            if node.is_running and self.role(node) == "master" and self.has_slot(node, slot):
                return node
        raise AssertionError(f"no node has slot {slot}")

    def has_slot(self, node: RedisServer, slot: int) -> bool:
        own = self.id_of(node).encode()
        return any(first <= slot <= last and master[2] == own for first, last, master, *_ in slots_of(node))

    def is_well(self) -> bool:
        living = [node for node in self.nodes if node.is_running]
        return all(_info(node)["cluster_state"] == "ok" for node in living) and (
            len(living) < len(self.nodes)
            or any(node.ask("INFO", "replication").count(b"master_link_status:up") for node in living)
        )

    @property
    def epoch(self) -> int:
        """Grows with each election. A slot that moves can raise it, too."""
        return max(int(_info(node)["cluster_current_epoch"]) for node in self.nodes if node.is_running)

    def wait_until_well(self) -> None:
        wait(self.is_well, "the cluster is not well")

    def fail_over(self) -> None:
        """A planned failover between nodes[0] and nodes[3]."""
        replica = next(node for node in (self.nodes[3], self.nodes[0]) if self.role(node) == "slave")
        replica.execute("CLUSTER", "FAILOVER")
        wait(lambda: self.role(replica) == "master", "the replica does not take over")

    def move_slot(self, slot: int, there: RedisServer, *, keys_a_call: int = 10) -> None:
        """Moves a slot as redis-cli --cluster reshard does: MIGRATING, IMPORTING, MIGRATE, NODE."""
        here = self.master_of(slot)
        here_id, there_id = self.id_of(here), self.id_of(there)
        there.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", here_id)
        here.execute("CLUSTER", "SETSLOT", slot, "MIGRATING", there_id)
        while keys := here.execute("CLUSTER", "GETKEYSINSLOT", slot, keys_a_call):
            _migrate(here, there, keys)
        there.execute("CLUSTER", "SETSLOT", slot, "NODE", there_id)
        here.execute("CLUSTER", "SETSLOT", slot, "NODE", there_id)
        for node in self.nodes:
            if node.is_running and node not in (here, there) and self.role(node) == "master":
                node.execute("CLUSTER", "SETSLOT", slot, "NODE", there_id)

    def open_slot(self, slot: int, there: RedisServer, *, keys: int = 1) -> None:
        """Leaves a slot half-migrated: some of its keys have moved. move_slot() moves the others."""
        here = self.master_of(slot)
        there.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(here))
        here.execute("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(there))
        if keys and (found := here.execute("CLUSTER", "GETKEYSINSLOT", slot, keys)):
            _migrate(here, there, found)

    def close_slot(self, slot: int, here: RedisServer, there: RedisServer) -> None:
        """Closes an open slot of which no key has moved."""
        here.execute("CLUSTER", "SETSLOT", slot, "STABLE")
        there.execute("CLUSTER", "SETSLOT", slot, "STABLE")

    def migrate_at_once(self, slot: int, here: RedisServer, there: RedisServer) -> bool:
        """Begins an atomic migration. False if the server moves slots only key by key."""
        if here.product == "Redis" and here.version >= (8, 4, 0):
            there.execute("CLUSTER", "MIGRATION", "IMPORT", slot, slot)
        elif here.product == "Valkey" and here.version >= (9, 0, 0):
            here.execute("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self.id_of(there))
        else:
            return False
        return True

    def _have_met(self) -> bool:
        """Nodes forget a handshake that takes longer than their timeout, so they are introduced again."""
        for node in self.nodes[1:]:
            if not self._knows_all(node):
                node.execute("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        deadline = time.monotonic() + MEETING_S
        while time.monotonic() < deadline:
            if all(map(self._knows_all, self.nodes)):
                return True
            time.sleep(0.02)
        return False

    def _knows_all(self, node: RedisServer) -> bool:
        return int(_info(node)["cluster_known_nodes"]) == len(self.nodes) and b"handshake" not in node.ask(
            "CLUSTER", "NODES"
        )


def _migrate(here: RedisServer, there: RedisServer, keys: list[bytes]) -> None:
    """Moves keys; on a busy machine the nodes can lose sight of each other for a moment."""

    def has_moved() -> bool:
        try:
            here.execute("MIGRATE", "127.0.0.1", there.port, "", 0, 5000, "REPLACE", "KEYS", *keys)
        except redis.ResponseError as error:
            if not str(error).startswith(("CLUSTERDOWN", "The cluster is down", "IOERR")):
                raise
            return False
        return True

    wait(has_moved, "the keys do not move")


def slots_of(node: RedisServer) -> Any:
    return node.ask("CLUSTER", "SLOTS")


def _info(node: RedisServer) -> dict[str, str]:
    lines = node.ask("CLUSTER", "INFO").decode().split()
    return dict(line.split(":", 1) for line in lines)


def wait(is_true: Any, otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)
