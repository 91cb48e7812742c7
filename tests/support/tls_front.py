"""TLS in front of a server that has none: decrypts, and passes everything on.

The certificates in tls/ are for tests only, and end in 2120; tls/make makes them. `here` is for localhost and
127.0.0.1, `elsewhere` for another name, `expired` and `early` are `here` at other times, `locked` is `here` with a key
that needs the password opensesame, `client` is for clients; `ca` has signed them, and nobody trusts it unless
configured to. `other-ca`, which no server trusts, has signed `unknown-client`.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from types import TracebackType
from typing import Self

FOLDER = Path(__file__).with_name("tls")
AUTHORITY = FOLDER / "ca.pem"


class TlsFront:
    """Listens on a loopback port and passes on to a unix socket."""

    def __init__(self, socket_path: Path, certificate: str = "here", *, newest: ssl.TLSVersion | None = None) -> None:
        self._socket_path = socket_path
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(FOLDER / f"{certificate}.pem")
        self._context.sni_callback = self._note_name
        if newest is not None:
            self._context.maximum_version = newest
        self._listener: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.accepted = 0  # connections whose handshake was completed
        self.names: list[str | None] = []  # the host name that each client has asked for (SNI)

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", ssl=self._context)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._listener
        self._listener.close()
        for writer in self._writers:
            writer.transport.abort()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    @property
    def port(self) -> int:
        assert self._listener, "enter it first"
        return int(self._listener.sockets[0].getsockname()[1])

    def _note_name(self, _: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        self.names.append(name)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        server_reader, server_writer = await asyncio.open_unix_connection(self._socket_path)
        self._writers += (writer, server_writer)
        for source, sink in ((reader, server_writer), (server_reader, writer)):
            pipe = asyncio.create_task(_pass_on(source, sink))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while chunk := await source.read(65536):
            sink.write(chunk)
            await sink.drain()
    except (OSError, ssl.SSLError):
        pass
    finally:
        sink.transport.abort()
