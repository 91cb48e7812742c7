"""Fixtures for any test. The suite runs on one server of its own, emptied before each test that uses it."""

from __future__ import annotations

import gc
import importlib.metadata
import logging
import os
import signal
from collections.abc import AsyncIterator, Generator, Iterator
from functools import cache
from uuid import uuid4

import pytest
import redis.asyncio
from hypothesis import settings

from pychasqui import Queue
from pychasqui._redis.server_checks import SILENCED_BY
from pychasqui.errors import ServerNotFound
from tests.support import few_rights, temporary
from tests.support.leaks import leaked_keys
from tests.support.proxy import Proxy
from tests.support.server import PROJECT, RedisServer, describe, server_binary

# The servers of the matrix are what distributions have; its tests want to know what else a worker says.
os.environ[SILENCED_BY] = "1"

# Each client of redis-py looks its own version up, which takes longer than all that most tests do with the client.
importlib.metadata.version = cache(importlib.metadata.version)
settings.register_profile("busy machine", deadline=None)  # tests about time measure it themselves
settings.load_profile("busy machine")

# A suite that a shell runs in the background ignores Ctrl-C, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FAILED = pytest.StashKey[bool]()

if few_rights.IS_ON:
    few_rights.install()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # processes that this one starts for tests use its folder
        temporary.use_one_folder(config)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if temporary.FOLDER in config.stash:
        temporary.remove_folder(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if few_rights.IS_ON:
        few_rights.leave_out_marked(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects without the garbage collector: nearly all that is made here stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_report_header() -> str:
    try:
        binary = server_binary()
    except ServerNotFound as error:
        return f"server: none ({error})"
    product, version = describe(binary)
    server = binary.relative_to(PROJECT) if binary.is_relative_to(PROJECT) else binary
    return f"server: {product} {'.'.join(map(str, version))} ({server})"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    """The server of the whole run, on a unix socket and a TCP port. To stop or configure one, start another."""
    with RedisServer(tcp=True) as server:
        yield server


@pytest.fixture(autouse=True)
def _logging_is_restored() -> Iterator[None]:
    """A test that runs a command in this process must not change what later tests find in the log."""
    loggers = (logging.getLogger(), logging.getLogger("chasqui"))
    before = [(logger.level, list(logger.handlers), logger.propagate) for logger in loggers]
    yield
    for logger, (level, handlers, propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:], logger.propagate = handlers, propagate


@pytest.fixture
def redis_url(server: RedisServer) -> str:
    """The address of the run's server, emptied."""
    server.resume()
    server.start()
    server.ask("FLUSHALL")
    return server.url


@pytest.fixture(autouse=few_rights.IS_ON)
def _no_refusals(request: pytest.FixtureRequest) -> Iterator[None]:
    """The users of the suite are refused nothing."""
    server = request.getfixturevalue("server") if "server" in request.fixturenames else None
    yield
    assert few_rights.find_refusals(server) == []


@pytest.fixture
async def witness(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    """An independent client, to look at and tamper with what is stored: redis-py, bytes in and out."""
    client = redis.asyncio.Redis.from_url(redis_url, decode_responses=False, socket_timeout=None)
    yield client
    await client.aclose()


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(redis_url) as proxy:
        yield proxy


@pytest.fixture
def queue_name() -> str:
    return f"q-{uuid4().hex[:12]}"


@pytest.fixture
async def queue(redis_url: str, queue_name: str) -> AsyncIterator[Queue]:
    async with Queue(queue_name, redis_url=redis_url) as queue:
        yield queue


@pytest.fixture
def no_keys_left(request: pytest.FixtureRequest, server: RedisServer, redis_url: str) -> Iterator[None]:
    """Once the test is over, only keys with an end may be left: see tests/support/leaks.py.

    The server is emptied before, also for a test that asks for `server` alone: what an earlier one left is not its own.
    """
    yield
    if request.node.stash.get(FAILED, False) or request.node.get_closest_marker("leaves_keys"):
        return
    leaked = leaked_keys(server)
    assert not leaked, "the test left keys behind:\n" + "\n".join(leaked)
