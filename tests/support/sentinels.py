"""A master with replicas and three Sentinels of the tests' own, on loopback ports."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from tests.support.cluster import wait
from tests.support.server import RedisServer

MASTER_NAME = "mymaster"
DOWN_AFTER_MS = 600
ASK_AGAIN_S = 3.0
SERVER_CONFIG = ("--repl-ping-replica-period", "1")


class SentinelServer(RedisServer):
    """One Sentinel: the same program, with a file that it writes its state to."""

    def __init__(self, *lines: str, binary: Path | None = None) -> None:
        super().__init__(tcp=True, binary=binary)
        self._file = self.folder / "sentinel.conf"
        self._file.write_text("\n".join(lines) + "\n")

    def _command_line(self) -> list[str]:
        program, *options = super()._command_line()
        return [program, str(self._file), "--sentinel", *options[: options.index("--save")]]


class SentinelServers:
    """servers[0] is the master at first, the others are its replicas."""

    def __init__(self, *, replicas: int = 1, sentinels: int = 3) -> None:
        self._replicas = replicas
        self._count = sentinels
        self._stack = ExitStack()
        self.servers: list[RedisServer] = []
        self.sentinels: list[SentinelServer] = []

    def __enter__(self) -> Self:
        enter = self._stack.enter_context
        self.servers = [enter(RedisServer(*SERVER_CONFIG, tcp=True)) for _ in range(1 + self._replicas)]
        for replica in self.servers[1:]:
            replica.execute("REPLICAOF", "127.0.0.1", self.servers[0].port)
        wait(lambda: all(map(is_in_sync, self.servers[1:])), "the replicas are not in sync")
        lines = (
            f"sentinel monitor {MASTER_NAME} 127.0.0.1 {self.servers[0].port} {self._count // 2 + 1}",
            f"sentinel down-after-milliseconds {MASTER_NAME} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {MASTER_NAME} 1000",
        )
        self.sentinels = [enter(SentinelServer(*lines)) for _ in range(self._count)]
        wait(lambda: all(map(self._knows_all, self.sentinels)), "the Sentinels do not find each other")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.addresses}/{MASTER_NAME}"

    @property
    def addresses(self) -> str:
        return ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)

    @property
    def master(self) -> RedisServer:
        """The server that the first Sentinel says is the master."""
        _, port = self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME)
        return next(server for server in self.servers if server.port == int(port))

    @property
    def newest_master(self) -> RedisServer:
        """The server that any Sentinel says is the master, if one of them says another than the first."""
        ports = {int(each.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME)[1]) for each in self.sentinels}
        first = self.master
        return next((server for server in self.servers if server.port in ports and server is not first), first)

    @property
    def epoch(self) -> int:
        """Grows with each failover."""
        return max(int(_facts_of(each)[b"config-epoch"]) for each in self.sentinels)

    def wait_until_well(self) -> None:
        """Waits until a replica follows the master."""

        def is_well() -> bool:
            return any(is_in_sync(server) for server in self.servers if server is not self.master)

        wait(is_well, "the replicas do not follow")

    def fail_over(self) -> None:
        """A planned failover: returns once a replica is the master. A busy machine makes a Sentinel give up."""
        before, ask_at = self.master, 0.0

        def has_ended() -> bool:
            nonlocal ask_at
            if time.monotonic() >= ask_at:
                ask_at = time.monotonic() + ASK_AGAIN_S
                with suppress(redis.ResponseError):  # NOGOODSLAVE or INPROG: a moment later it can
                    self.sentinels[0].execute("SENTINEL", "FAILOVER", MASTER_NAME)
            return self.master is not before

        wait(has_ended, "no replica takes over")

    def _knows_all(self, sentinel: SentinelServer) -> bool:
        facts = _facts_of(sentinel)
        return (int(facts[b"num-other-sentinels"]), int(facts[b"num-slaves"])) == (self._count - 1, self._replicas)


def _facts_of(sentinel: SentinelServer) -> dict[bytes, bytes]:
    reply = sentinel.ask("SENTINEL", "MASTER", MASTER_NAME)
    return dict(zip(reply[::2], reply[1::2], strict=True))


def is_in_sync(replica: RedisServer) -> bool:
    return b"master_link_status:up" in replica.ask("INFO", "replication")
