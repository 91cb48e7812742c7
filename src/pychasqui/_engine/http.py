"""Answers GET and HEAD on a port: enough of HTTP/1.1 for a scraper and a probe, and nothing that could hold it up.

One request a connection, bounded in size and time, and not many at once: whoever sends slowly, or a lot, is cut off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from ..errors import CannotServe

log = logging.getLogger("chasqui.http")

MAX_REQUEST_BYTES = 8192
ANSWER_WITHIN_S = 5.0
MOST_AT_ONCE = 32


class Answer(NamedTuple):
    body: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


Page = Callable[[], Awaitable[Answer]]


class HttpServer:
    """start() -> answers -> stop(). Port 0 takes any that is free; `port` says which, once it is started."""

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        self.port = port
        self._host = host
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        if self._server is not None:
            return
        try:
            self._server = await asyncio.start_server(self._accept, self._host, self.port, limit=MAX_REQUEST_BYTES)
        except OSError as error:
            raise CannotServe(f"{self._host}:{self.port} cannot be listened on: {error}") from error
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("metrics are at http://%s:%d/metrics", self._host, self.port)

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for talk in self._talks:
            talk.cancel()
        if self._talks:
            await asyncio.wait(self._talks)
        await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._talks) >= MOST_AT_ONCE or self._server is None:
            writer.transport.abort()
            return
        talk = asyncio.ensure_future(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                writer.write(await self._answer(reader))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # whoever asked has gone, or is too slow
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(_plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(_plain(HTTPStatus.BAD_REQUEST))
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response(_plain(HTTPStatus.METHOD_NOT_ALLOWED), "Allow: GET, HEAD\r\n")
        return _response(await self._look_up(path), has_body=method == "GET")

    async def _look_up(self, path: str) -> Answer:
        page = self._pages.get(path)
        if page is None:
            return _plain(HTTPStatus.NOT_FOUND)
        try:
            return await page()
        except Exception:
            log.exception("%.100r cannot be answered", path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _plain(status: HTTPStatus) -> Answer:
    return Answer(f"{status.phrase}\n", status)


def _response(answer: Answer, headers: str = "", *, has_body: bool = True) -> bytes:
    body = answer.body.encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Connection: close\r\n{headers}\r\n"
    )
    return head.encode("latin-1") + (body if has_body else b"")
