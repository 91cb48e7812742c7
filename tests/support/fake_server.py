"""A server that listens where a Redis is expected: another program, an old Redis, or one that never answers.

Lives in the event loop of the test. It records the commands that it gets, and answers as configured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import hiredis

Answer = Callable[[list[bytes]], bytes | None]


def silence(command: list[bytes]) -> None:
    """Accept everything and say nothing."""


def redis_that_says(version: str, server: str = "redis") -> Answer:
    """Answers as a Redis with HELLO, of any version."""

    def answer(command: list[bytes]) -> bytes:
        if command[0].upper() != b"HELLO":
            return b"+OK\r\n"
        fields = ["server", server, "version", version, "proto", "2", "id", "1"]
        return b"*%d\r\n" % len(fields) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in fields)

    return answer


def redis_without_hello(version: str) -> Answer:
    """Answers as a Redis before 6.0."""

    def answer(command: list[bytes]) -> bytes:
        if command[0].upper() == b"INFO":
            text = f"# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\n".encode()
            return b"$%d\r\n%s\r\n" % (len(text), text)
        return b"-ERR unknown command `%s`, with args beginning with: \r\n" % command[0]

    return answer


def refusal(command: list[bytes]) -> bytes:
    return b"-ERR unknown command '%s'\r\n" % command[0]


class FakeServer:
    """Listens on a loopback port. With `greeting` it writes first; with a raw `answer` it does not parse requests."""

    def __init__(self, answer: Answer | bytes = silence, *, greeting: bytes = b"") -> None:
        self.commands: list[list[bytes]] = []
        self.accepted = 0
        self._answer = answer
        self._greeting = greeting
        self._listener: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._listener
        self._listener.close()
        for writer in self._writers:
            writer.transport.abort()

    @property
    def url(self) -> str:
        assert self._listener, "enter the server first"
        return f"redis://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.append(writer)
        if self._greeting:
            writer.write(self._greeting)
        parser = hiredis.Reader()
        try:
            while chunk := await reader.read(65536):
                if isinstance(self._answer, bytes):
                    writer.write(self._answer)
                    continue
                parser.feed(chunk)
                while (command := parser.gets()) is not False:
                    assert isinstance(command, list)
                    self.commands.append(command)
                    reply = self._answer(command)
                    if reply is not None:
                        writer.write(reply)
        except ConnectionError:
            pass
        finally:
            writer.close()
