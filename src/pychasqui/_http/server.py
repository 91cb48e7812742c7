"""An HTTP/1.1 server for scrapers and probes: answers GET and HEAD.

Each connection carries one request, bounded in size and time. The number of connections is bounded, too; past the bound
a new connection replaces the oldest one that has sent no request, so idle clients do not keep out a probe. The requests
for each page are bounded separately, so slow readers of one page do not keep out readers of another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from time import monotonic
from typing import NamedTuple

from .._core.printable import printable
from ..errors import CannotServe

log = logging.getLogger("chasqui.http")

MAX_REQUEST_BYTES = 8192
ANSWER_WITHIN_S = 5.0
MAX_CONNECTIONS = 64  # more than the requests of all pages together
MAX_REQUESTS_PER_PAGE = 16  # requests


class Answer(NamedTuple):
    body: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


Page = Callable[[], Awaitable[Answer]]


class SharedPage:
    """Makes a page once for all requests that come while it is made and for `served_for_s` after."""

    def __init__(self, page: Page, served_for_s: float) -> None:
        self._page = page
        self._served_for_s = served_for_s
        self._made: asyncio.Future[Answer] | None = None
        self._made_at = 0.0

    async def __call__(self) -> Answer:
        is_over = self._made is not None and self._made.done() and monotonic() >= self._made_at + self._served_for_s
        if self._made is None or is_over or (self._made.done() and self._made.cancelled()):
            self._made = asyncio.ensure_future(self._make_fresh_page())
        return await asyncio.shield(self._made)  # one cancelled request must not cancel the page for the others

    async def _make_fresh_page(self) -> Answer:
        try:
            return await self._page()
        finally:
            self._made_at = monotonic()

    def cancel_page(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.cancel()


class HttpServer:
    """start() -> answers requests -> stop(). Port 0 takes a free port; after start(), `port` is its number.

    A host that begins with a slash is the path of a Unix socket; then there is no port.
    """

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        self.port = port
        self._host = host
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._idle: dict[asyncio.Task[None], None] = {}  # connections that have sent no request yet, oldest first
        self._busy: Counter[str] = Counter()  # requests in progress, by page

    async def start(self) -> None:
        if self._server is not None:
            return
        if self._host.startswith("/"):
            await self._listen_on_unix_socket(self._host)
            return
        try:
            self._server = await asyncio.start_server(
                self._serve_or_refuse_connection, self._host, self.port, limit=MAX_REQUEST_BYTES
            )
        except (OSError, UnicodeError) as error:  # the second if the host is no name at all
            raise CannotServe(f"{self._host}:{self.port} cannot be listened on: {error}") from error
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("metrics are served at http://%s:%d/metrics", self._host, self.port)

    async def _listen_on_unix_socket(self, path: str) -> None:
        try:
            self._server = await asyncio.start_unix_server(
                self._serve_or_refuse_connection, path, limit=MAX_REQUEST_BYTES
            )
        except OSError as error:
            raise CannotServe(f"{path} cannot be listened on: {error}") from error
        log.debug("metrics are served at the socket %s", path)

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        await server.wait_closed()

    def _serve_or_refuse_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None or not self._try_to_make_room_by_closing_idle():
            writer.transport.abort()
            return
        connection = asyncio.ensure_future(self._serve_connection(reader, writer))
        self._connections.add(connection)
        self._idle[connection] = None
        connection.add_done_callback(self._forget_connection)

    def _try_to_make_room_by_closing_idle(self) -> bool:
        if len(self._connections) < MAX_CONNECTIONS:
            return True
        oldest = next(iter(self._idle), None)
        if oldest is None:
            return False
        oldest.cancel()
        self._forget_connection(oldest)
        return True

    def _forget_connection(self, connection: asyncio.Task[None]) -> None:
        self._connections.discard(connection)
        self._idle.pop(connection, None)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await self._answer_request(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # the client has left, or is too slow
        finally:
            writer.transport.abort()

    async def _answer_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            await _write_and_close(
                writer, _encode_response(_make_status_answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
            )
            return
        connection = asyncio.current_task()
        if connection is not None:
            self._idle.pop(connection, None)
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            await _write_and_close(writer, _encode_response(_make_status_answer(HTTPStatus.BAD_REQUEST)))
            return
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            await _write_and_close(
                writer, _encode_response(_make_status_answer(HTTPStatus.METHOD_NOT_ALLOWED), "Allow: GET, HEAD\r\n")
            )
            return
        await self._send_page_or_error(path, writer, has_body=method == "GET")

    async def _send_page_or_error(self, path: str, writer: asyncio.StreamWriter, *, has_body: bool) -> None:
        page = self._pages.get(path)
        if page is None or self._busy[path] >= MAX_REQUESTS_PER_PAGE:
            status = HTTPStatus.NOT_FOUND if page is None else HTTPStatus.SERVICE_UNAVAILABLE
            await _write_and_close(writer, _encode_response(_make_status_answer(status), has_body=has_body))
            return
        self._busy[path] += 1
        try:
            await _write_and_close(
                writer, _encode_response(await _call_page_or_answer_500(path, page), has_body=has_body)
            )
        finally:
            self._busy[path] -= 1


async def _call_page_or_answer_500(path: str, page: Page) -> Answer:
    try:
        return await page()
    except Exception:
        log.exception("the page %s has failed and is answered with status 500", printable(path))
        return _make_status_answer(HTTPStatus.INTERNAL_SERVER_ERROR)


async def _write_and_close(writer: asyncio.StreamWriter, response: bytes) -> None:
    writer.write(response)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


def _make_status_answer(status: HTTPStatus) -> Answer:
    return Answer(f"{status.phrase}\n", status)


def _encode_response(answer: Answer, headers: str = "", *, has_body: bool = True) -> bytes:
    body = answer.body.encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Connection: close\r\n{headers}\r\n"
    )
    return head.encode("latin-1") + (body if has_body else b"")
