"""S5: a password is shown on none of the ways on which a connection fails, the locals of the functions included."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

import pychasqui
from pychasqui import ChasquiError, Job, Queue, QueueEvents, Worker
from tests.support.fake_server import FakeServer, redis_that_says, redis_without_hello, refusal, silence
from tests.support.server import RedisServer
from tests.support.tls_front import AUTHORITY, TlsFront

PACKAGE = os.path.dirname(pychasqui.__file__) + os.sep
SECRET = "hunter2SENTINEL"
Ways = Callable[[RedisServer], "contextlib.AbstractAsyncContextManager[str]"]


@asynccontextmanager
async def nobody_listens(server: RedisServer) -> AsyncIterator[str]:
    yield f"redis://ann:{SECRET}@127.0.0.1:1"


@asynccontextmanager
async def no_socket(server: RedisServer) -> AsyncIterator[str]:
    yield f"unix://ann:{SECRET}@/nowhere/redis.sock"


@asynccontextmanager
async def no_password_is_set(server: RedisServer) -> AsyncIterator[str]:
    yield f"redis://:{SECRET}@127.0.0.1:{server.port}"


@asynccontextmanager
async def unknown_user(server: RedisServer) -> AsyncIterator[str]:
    yield f"redis://ann:{SECRET}@127.0.0.1:{server.port}"


@asynccontextmanager
async def no_such_database(server: RedisServer) -> AsyncIterator[str]:
    server.execute("ACL", "SETUSER", "ann", "on", f">{SECRET}", "+@all", "~*", "&*")
    try:
        yield f"redis://ann:{SECRET}@127.0.0.1:{server.port}/999"
    finally:
        server.execute("ACL", "DELUSER", "ann")


@asynccontextmanager
async def no_permission(server: RedisServer) -> AsyncIterator[str]:
    server.execute("ACL", "SETUSER", "ann", "on", f">{SECRET}")
    try:
        yield f"redis://ann:{SECRET}@127.0.0.1:{server.port}"
    finally:
        server.execute("ACL", "DELUSER", "ann")


@asynccontextmanager
async def tls_to_a_plain_port(server: RedisServer) -> AsyncIterator[str]:
    yield f"rediss://ann:{SECRET}@127.0.0.1:{server.port}"


@asynccontextmanager
async def plain_text_to_a_tls_port(server: RedisServer) -> AsyncIterator[str]:
    async with TlsFront(server.socket_path) as front:
        yield f"redis://ann:{SECRET}@localhost:{front.port}"


@asynccontextmanager
async def certificate_for_another_name(server: RedisServer) -> AsyncIterator[str]:
    async with TlsFront(server.socket_path, "elsewhere") as front:
        yield f"rediss://ann:{SECRET}@localhost:{front.port}?ssl_ca_certs={AUTHORITY}"


def answered_by(answer: Callable[[list[bytes]], bytes | None] | bytes) -> Ways:
    @asynccontextmanager
    async def way(server: RedisServer) -> AsyncIterator[str]:
        async with FakeServer(answer) as fake:
            yield fake.url.replace("://", f"://ann:{SECRET}@")

    return way


def echo(command: list[bytes]) -> bytes:
    """Some proxies put what they were sent into their errors; AUTH's words must not come back that way."""
    return b"-ERR unknown command, with args beginning with: " + b" ".join(b"'%s'" % word for word in command) + b"\r\n"


WAYS = {
    "nobody listens": nobody_listens,
    "no socket": no_socket,
    "no password is set": no_password_is_set,
    "unknown user": unknown_user,
    "no such database": no_such_database,
    "no permission": no_permission,
    "TLS to a plain port": tls_to_a_plain_port,
    "plain text to a TLS port": plain_text_to_a_tls_port,
    "certificate for another name": certificate_for_another_name,
    "silence": answered_by(silence),
    "another protocol": answered_by(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "too old": answered_by(redis_that_says("5.0.0")),
    "older still": answered_by(redis_without_hello("3.2.1")),
    "refuses everything": answered_by(refusal),
    "echoes everything": answered_by(echo),
}


def shown_by(error: BaseException) -> str:
    """The error as an error tracker sends it: with the chain behind it and the locals of each function of ours."""
    text = [f"{error!s} {error!r} {error.args!r}"]
    trace = traceback.TracebackException.from_exception(error, capture_locals=True)
    for frame in trace.stack:
        if frame.filename.startswith(PACKAGE):
            text += [f"{name}={value}" for name, value in (frame.locals or {}).items()]
    behind = error.__cause__ or error.__context__
    return "\n".join(text) + (shown_by(behind) if behind is not None else "")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_connection_that_fails_keeps_the_password_to_itself(
    way: Ways, server: RedisServer, redis_url: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async def handle(job: Job) -> None:
        pass

    caplog.set_level(logging.DEBUG)
    printable = []
    async with way(server) as url, Queue("emails", redis_url=url, timeout_s=0.3) as queue:
        with pytest.raises(ChasquiError) as failure:
            await queue.add("send")
        printable += [shown_by(failure.value), repr(queue)]
        worker = Worker("emails", handle, redis_url=url)
        running = asyncio.create_task(worker.run())
        await asyncio.wait({running}, timeout=0.3)
        await worker.close()
        printable += [
            repr(worker),
            *(shown_by(error) for error in await asyncio.gather(running, return_exceptions=True) if error),
        ]
        events = QueueEvents("emails", redis_url=url)
        with contextlib.suppress(ChasquiError, TimeoutError):
            await asyncio.wait_for(anext(events), 0.2)
        await events.close()
        printable.append(repr(events))
    said = capfd.readouterr()
    printable += [caplog.text, said.out, said.err]
    assert SECRET not in "\n".join(printable)
