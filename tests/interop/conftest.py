"""Both kinds on one queue. After each test the queue must be empty: nothing waits, is pending, delayed or dead."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from tests.conftest import FAILED
from tests.interop.official import Official, reason_to_skip
from tests.interop.wire import Wire, nothing_left
from tests.support.server import RedisServer


@pytest.fixture
def can_run_both(server: RedisServer) -> None:
    if reason := reason_to_skip(server):
        pytest.skip(reason)


@pytest.fixture
async def official(
    request: pytest.FixtureRequest,
    can_run_both: None,
    server: RedisServer,
    witness: redis.asyncio.Redis,
    queue_name: str,
) -> AsyncIterator[Official]:
    """The official package on this test's queue, which must be empty in the end.

    Looked at while the official process still lives: what it holds may not be hidden by its end.
    """
    async with Official(server, witness, queue_name) as official:
        yield official
        if not request.node.stash.get(FAILED, False):
            await nothing_left(server)


@pytest.fixture
def wire(witness: redis.asyncio.Redis, queue_name: str) -> Wire:
    return Wire(witness, queue_name)
