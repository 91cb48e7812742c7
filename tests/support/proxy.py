"""A proxy between a client under test and a server, which cuts, freezes, delays and fragments at chosen moments.

Owns its listening socket and the connections that go through it. It knows where requests and replies begin and end, so
that a cut can fall exactly before a request, after its execution or inside its reply; it never changes a byte, unless a
test says how.
It lives in the event loop of the test.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

CHUNK = 65536
HELD_CHUNKS = 8  # of one direction of a connection
PIECES_PER_S = 50  # of a connection whose bytes are limited
Direction = Literal["requests", "replies"]
Moment = Literal["before request", "after request", "mid reply"]


@dataclass
class Cut:
    """A cut that waits for the next request with `match` in it. `done` is set once it has fallen as often as asked."""

    moment: Moment
    match: bytes
    times: int
    claimed: int = 0
    fallen: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def claims(self, request: bytes) -> bool:
        return self.claimed < self.times and self.match in request

    def fall(self) -> None:
        self.fallen += 1
        if self.fallen == self.times:
            self.done.set()


class Proxy:
    """Listens on a private unix socket, or with tcp=True on a loopback port, and passes on to `target`.

    `target` may be changed at any time; new connections go to the new one.
    """

    def __init__(
        self, target: str, *, tcp: bool = False, rewrite: Callable[[bytes], bytes] = lambda request: request
    ) -> None:
        self.target = target
        self.rewrite = rewrite  # what the server gets in place of a request
        self.requests: list[bytes] = []  # every request passed on or cut off, in order of arrival
        self.accepted = 0  # connections accepted so far, without the refused ones
        self._tcp = tcp
        self._folder = Path(tempfile.mkdtemp(prefix="chasqui-proxy-"))
        self._listener: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._cuts: list[Cut] = []
        self._refusing = False
        self._flow: dict[Direction, asyncio.Event] = {"requests": asyncio.Event(), "replies": asyncio.Event()}
        self._delay_s = 0.0
        self._fragment_bytes = 0
        self._bytes_per_s = 0

    async def __aenter__(self) -> Self:
        self.thaw()
        if self._tcp:
            self._listener = await asyncio.start_server(self._accept, "127.0.0.1")
        else:
            self._listener = await asyncio.start_unix_server(self._accept, self._folder / "proxy.sock")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._listener
        self._listener.close()
        links = list(self._links)
        self.cut()
        await asyncio.gather(*(link.ended.wait() for link in links))
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        assert self._listener, "enter the proxy first"
        if self._tcp:
            host, port = self._listener.sockets[0].getsockname()
            return f"redis://{host}:{port}"
        return f"unix://{self._folder / 'proxy.sock'}"

    @property
    def connections(self) -> int:
        return len(self._links)

    def count(self, match: bytes = b"") -> int:
        """How many requests so far contained `match`."""
        return sum(match in request for request in self.requests)

    def cut(self) -> None:
        """Close all connections now; bytes in the proxy's hands are lost."""
        for link in self._links:
            link.cut()

    def cut_before_request(self, match: bytes, *, times: int = 1) -> Cut:
        """Cut the connection that sends a request with `match` in it; the server never sees that request."""
        return self._plan("before request", match, times)

    def cut_after_request(self, match: bytes, *, times: int = 1) -> Cut:
        """Let the server execute the request and nothing after it; then drop the reply and cut."""
        return self._plan("after request", match, times)

    def cut_mid_reply(self, match: bytes, *, times: int = 1) -> Cut:
        """Let the server execute the request and nothing after it; then deliver half of the reply and cut."""
        return self._plan("mid reply", match, times)

    def refuse(self) -> None:
        """Close new connections as soon as they are made."""
        self._refusing = True

    def admit(self) -> None:
        self._refusing = False

    def freeze(self, direction: Direction | None = None) -> None:
        """Hold all bytes of one direction or both, and the end of a side too, as a half-open connection does."""
        for each in (direction,) if direction else self._flow:
            self._flow[each].clear()

    def thaw(self) -> None:
        """Let everything held go on."""
        for flow in self._flow.values():
            flow.set()

    def delay(self, ms: float) -> None:
        """Hold every chunk, either way, for at least `ms`. 0 ends it."""
        self._delay_s = ms / 1000

    def fragment(self, size: int) -> None:
        """Deliver replies in pieces of `size` bytes, each in a loop turn of its own. 0 ends it."""
        self._fragment_bytes = size

    def limit(self, bytes_per_s: int) -> None:
        """Carry no more than this a second, on each connection and either way, in small pieces. 0 ends it."""
        self._bytes_per_s = bytes_per_s

    def _plan(self, moment: Moment, match: bytes, times: int) -> Cut:
        cut = Cut(moment, match, times)
        self._cuts.append(cut)
        return cut

    def _claim(self, request: bytes) -> Cut | None:
        """The cut that is meant for this request, taken so that no other request gets it."""
        cut = next((cut for cut in self._cuts if cut.claims(request)), None)
        if cut:
            cut.claimed += 1
        return cut

    async def _hold(self, direction: Direction) -> None:
        await self._flow[direction].wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        self.accepted += 1
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)
            link.ended.set()


class _Link:
    """One client's connection and its twin to the server."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client_reader, self._client_writer = reader, writer
        self._unanswered: deque[Cut | None] = deque()  # one a request: the cut that waits for its reply, if any
        self._over = asyncio.Event()
        self.ended = asyncio.Event()

    def cut(self) -> None:
        self._over.set()

    async def run(self) -> None:
        try:
            server_reader, server_writer = await _connect(self._proxy.target)
        except OSError:
            self._client_writer.transport.abort()
            return
        tasks = [
            asyncio.create_task(self._pass_requests(server_writer)),
            asyncio.create_task(self._pass_replies(server_reader)),
            asyncio.create_task(self._over.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._client_writer.transport.abort()
            server_writer.transport.abort()

    async def _chunks(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """Yields chunks as they come. Under a delay each chunk is held for that long."""
        arrived: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        may_read, loop = asyncio.Semaphore(HELD_CHUNKS), asyncio.get_running_loop()

        async def read() -> None:
            try:
                while chunk := await self._read(reader, may_read):
                    arrived.put_nowait((loop.time(), chunk))
            finally:
                arrived.put_nowait((loop.time(), b""))

        reading = asyncio.create_task(read())
        try:
            while True:
                came_at, chunk = await arrived.get()
                await asyncio.sleep(max(0.0, came_at + self._proxy._delay_s - loop.time()))
                if not chunk:
                    return
                yield chunk
                may_read.release()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader, may_read: asyncio.Semaphore) -> bytes:
        await may_read.acquire()
        return await reader.read(self._proxy._bytes_per_s // PIECES_PER_S or CHUNK)

    async def _pass_requests(self, server: asyncio.StreamWriter) -> None:
        frames = _Frames()
        async for chunk in self._chunks(self._client_reader):
            await self._proxy._hold("requests")
            if rate := self._proxy._bytes_per_s:
                await asyncio.sleep(len(chunk) / rate)
            for request in frames.feed(chunk):
                self._proxy.requests.append(request)
                cut = self._proxy._claim(request)
                if cut and cut.moment == "before request":
                    await server.drain()
                    cut.fall()
                    return
                self._unanswered.append(cut)
                server.write(self._proxy.rewrite(request))
                if cut:
                    await self._over.wait()
            await server.drain()
        await self._proxy._hold("requests")

    async def _pass_replies(self, server: asyncio.StreamReader) -> None:
        frames = _Frames()
        async for chunk in self._chunks(server):
            await self._proxy._hold("replies")
            for reply in frames.feed(chunk):
                is_message = reply.startswith(b">") and not reply.startswith(b">3\r\n$9\r\nsubscribe")
                is_answer = self._unanswered and not is_message
                cut = self._unanswered.popleft() if is_answer else None
                if cut is None:
                    await self._deliver(reply)
                    continue
                if cut.moment == "mid reply":
                    await self._deliver(reply[: max(1, len(reply) // 2)])
                cut.fall()
                return
        await self._proxy._hold("replies")

    async def _deliver(self, reply: bytes) -> None:
        rate = self._proxy._bytes_per_s
        step = self._proxy._fragment_bytes or rate // PIECES_PER_S or len(reply)
        for start in range(0, len(reply), step):
            self._client_writer.write(reply[start : start + step])
            if step < len(reply) or rate:
                await asyncio.sleep(min(step, len(reply)) / rate if rate else 0)
        await self._client_writer.drain()


class _Frames:
    """Splits a byte stream of the Redis protocol, RESP2 or RESP3, at the ends of its requests or replies."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._rest += chunk
        start = 0
        while (end := _frame_end(self._rest, start)) is not None:
            yield self._rest[start:end]
            start = end
        self._rest = self._rest[start:]


def _frame_end(data: bytes, start: int) -> int | None:
    """Where the value that begins at `start` ends, or None if it is not complete."""
    missing = 1
    while missing:
        line_end = data.find(b"\r\n", start)
        if line_end < 0:
            return None
        kind, text = data[start : start + 1], data[start + 1 : line_end]
        start = line_end + 2
        missing -= 1
        if kind in b"$=!":
            start += int(text) + 2 if int(text) >= 0 else 0  # -1 is null and has no body
        elif kind in b"*~>":
            missing += max(0, int(text))
        elif kind == b"%":
            missing += 2 * int(text)
        elif kind == b"|":
            missing += 2 * int(text) + 1
        if start > len(data):
            return None
    return start


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(url)
    if address.scheme == "unix":
        return await asyncio.open_unix_connection(address.path)
    return await asyncio.open_connection(address.hostname, address.port)
