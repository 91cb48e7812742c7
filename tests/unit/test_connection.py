"""Connection without a server: the callers that wait for a socket."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from pychasqui._redis.connection import Connection
from pychasqui._redis.socket import Socket


async def test_callers_whose_opening_was_replaced_wait_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first socket is lost before its waiters are awake: one of them opens another."""
    connection, socket = Connection(cast(Any, None), printable_url="somewhere"), Socket(asyncio.get_running_loop())
    openings = 0

    async def open_somehow() -> None:
        nonlocal openings
        openings += 1
        await asyncio.sleep(0.01)
        connection.socket = socket if openings > 1 else None

    monkeypatch.setattr(connection, "_open_with_retries", open_somehow)
    deadline = connection.make_deadline(5)
    found = await asyncio.gather(*(connection.wait_for_socket(deadline) for _ in range(3)))
    assert found == [socket] * 3
    assert openings == 2
