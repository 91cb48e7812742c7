"""Fixtures of the integration tests. Each test that uses the run's server is checked for keys that it leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Worker
from tests.support.delayed import Delayed
from tests.support.streams import Stream


@pytest.fixture(autouse=True)
def _no_keys_left(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        request.getfixturevalue("no_keys_left")


@pytest.fixture
async def stream(witness: redis.asyncio.Redis, queue_name: str) -> AsyncIterator[Stream]:
    """This test's queue as an independent client sees it. Waiting entries are removed at the end."""
    stream = Stream(witness, queue_name)
    yield stream
    await stream.clear()


@pytest.fixture
async def delayed(witness: redis.asyncio.Redis, queue_name: str) -> AsyncIterator[Delayed]:
    """Its delayed jobs. Jobs that are left at the end are removed."""
    delayed = Delayed(witness, queue_name)
    yield delayed
    await witness.delete(delayed.key)


@pytest.fixture
def make_worker(redis_url: str, queue_name: str) -> Callable[..., Worker]:
    """A worker of this test's queue."""

    def make(handler: Any, **options: Any) -> Worker:
        return Worker(queue_name, handler, **{"redis_url": redis_url} | options)

    return make
