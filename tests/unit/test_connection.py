"""Connection without a server: the callers that wait for a socket, and connections to other nodes."""

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

    monkeypatch.setattr(connection, "_retry_until_open_or_permanent_error", open_somehow)
    deadline = connection.make_deadline(5)
    found = await asyncio.gather(*(connection.get_or_open_socket(deadline) for _ in range(3)))
    assert found == [socket] * 3
    assert openings == 2


async def test_the_longest_pause_between_attempts_leaves_time_to_connect_within_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host name that leads to the next master is tried again by then."""
    connection, pauses = Connection(cast(Any, None), printable_url="somewhere"), list[float]()

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("asyncio.sleep", note)
    monkeypatch.setattr("random.uniform", lambda least, most: most)
    for _ in range(20):
        await connection._pause_and_lengthen_backoff()
    assert pauses[0] < 0.1
    assert 0.5 < max(pauses) <= 0.8


class EverySlotElsewhere:
    """A destination of a cluster whose other slots all lie on other nodes."""

    def make_destination_if_slot_is_elsewhere(self, slot: int) -> EverySlotElsewhere:
        return EverySlotElsewhere()


def test_a_timeout_also_holds_for_the_connections_to_other_nodes_that_exist() -> None:
    connection = Connection(cast(Any, EverySlotElsewhere()), printable_url="somewhere", timeout_s=10)
    other = connection.get_or_make_connection_for_slot(5)
    connection.set_timeout(3)
    assert (connection.timeout_s, other.timeout_s, connection.get_or_make_connection_for_slot(6).timeout_s) == (3, 3, 3)
