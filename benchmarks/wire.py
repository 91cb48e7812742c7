"""A few lines of RESP2 on a blocking socket, standard library only.

The bench and every peer's process look at the server with it (how many jobs are left, how much memory is used), so
that looking costs the same for everybody and needs no client library in a peer's environment.
"""

from __future__ import annotations

import socket
from typing import Any, Self
from urllib.parse import urlsplit


class ServerSaid(Exception):
    """The server answered with an error."""


class Wire:
    """One connection: `call("XLEN", "key")` sends one command and waits for its reply."""

    def __init__(self, url: str, *, timeout_s: float = 60.0) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname or "127.0.0.1", address.port or 6379), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb")

    def call(self, *words: str | int | bytes) -> Any:
        self._socket.sendall(render(*words))
        return self._read()

    def info(self, section: str) -> dict[str, str]:
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def close(self) -> None:
        self._replies.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> Any:
        line = self._replies.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"-":
            raise ServerSaid(rest.decode())
        if int(rest) < 0:
            return None
        if kind == b"$":
            return self._replies.read(int(rest) + 2)[:-2]
        return [self._read() for _ in range(int(rest))]


def render(*words: str | int | bytes) -> bytes:
    """One command as the bytes that go to the server."""
    components = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        components.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(components)
