"""A master and its replica behind one host name, which a failover leads to the other address, as managed services do.

Both have the same port, on two loopback addresses. The name is resolved by this process alone: event loops of asyncio
ask `socket.getaddrinfo`, which answers it as a name server would.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from tests.support.cluster import wait
from tests.support.sentinels import SERVER_CONFIG, is_in_sync
from tests.support.server import RedisServer

FIRST, SECOND = "127.0.0.1", "127.0.0.2"


class HostName:
    """A name that leads to `address`, which may be changed at any time; the next lookup finds the new one."""

    def __init__(self, address: str) -> None:
        self.name = f"redis-{uuid4().hex[:8]}.test"
        self.address = address
        self.lookups = 0
        self._ask_system = socket.getaddrinfo

    def __enter__(self) -> Self:
        self._ask_system = socket.getaddrinfo
        socket.getaddrinfo = self._look_up
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Others may have been entered since: their lookups pass through this one, which then knows nothing."""
        if socket.getaddrinfo == self._look_up:
            socket.getaddrinfo = self._ask_system
        self.name = ""

    def _look_up(self, host: Any, *arguments: Any, **options: Any) -> Any:
        if not self.name or host != self.name:
            return self._ask_system(host, *arguments, **options)
        self.lookups += 1
        return self._ask_system(self.address, *arguments, **options)


class NamedPair:
    """servers[0] is the master at first, servers[1] its replica."""

    epoch = 0  # nobody elects

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.servers: list[RedisServer] = []
        self.host = HostName(FIRST)

    def __enter__(self) -> Self:
        enter = self._stack.enter_context
        first = enter(RedisServer(*SERVER_CONFIG, tcp=True))
        second = RedisServer(*SERVER_CONFIG, "--bind", SECOND, "--replica-announce-ip", SECOND)
        second.port = first.port
        enter(second)
        self.servers = [first, second]
        second.execute("REPLICAOF", FIRST, first.port)
        wait(lambda: is_in_sync(second), "the replica is not in sync")
        enter(self.host)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return f"redis://{self.host.name}:{self.servers[0].port}"

    def switch_name(self) -> None:
        """From now on the name leads to the second server."""
        self.host.address = SECOND

    def fail_over(self) -> None:
        """The second server becomes the master and lacks nothing; the first one lives on as its replica."""
        first, second = self.servers
        first.execute("FAILOVER", "TO", SECOND, second.port, "TIMEOUT", 10_000)
        wait(lambda: second.execute("ROLE")[0] == b"master", "the replica does not take over")

    def kill_master(self) -> None:
        """The second server becomes the master as it is."""
        self.servers[0].kill()
        self.servers[1].execute("REPLICAOF", "NO", "ONE")
