"""The time of the server is asked for once in a while, and counted on in between."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from pychasqui._worker import server_clock as module
from pychasqui._worker.server_clock import ServerClock
from pychasqui.errors import ConnectionLost

AHEAD_MS = 3_600_000


class FakeServer:
    def __init__(self, *, is_away: bool = False) -> None:
        self.asked = 0
        self.is_away = is_away

    async def read_server_time_ms(self) -> int:
        self.asked += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise ConnectionLost("away")
        return int(time.time() * 1000) + AHEAD_MS

    def clock(self) -> ServerClock:
        return ServerClock(cast(Any, self))


async def test_many_questions_at_once_are_one_to_the_server() -> None:
    server = FakeServer()
    clock = server.clock()
    answers = await asyncio.gather(*(clock.estimate_now_ms() for _ in range(100)))
    assert server.asked == 1
    assert all(abs(answer - time.time() * 1000 - AHEAD_MS) < 5000 for answer in answers)


async def test_the_server_is_asked_again_after_a_while(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "ASK_EVERY_S", 0.0)
    server = FakeServer()
    clock = server.clock()
    for _ in range(3):
        await clock.estimate_now_ms()
    assert server.asked == 3


async def test_the_clock_of_this_machine_stands_in_for_a_server_that_is_away() -> None:
    server = FakeServer(is_away=True)
    clock = server.clock()
    for _ in range(3):
        assert abs(await clock.estimate_now_ms() - time.time() * 1000) < 5000
    assert server.asked == 1


async def test_the_time_of_the_server_goes_on_while_this_machine_sleeps(monkeypatch: Any) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "lease_clock", lambda: now, raising=False)
    server = FakeServer()
    clock = server.clock()
    await clock.estimate_now_ms()
    now += module.ASK_EVERY_S + 3600
    await clock.estimate_now_ms()
    assert server.asked == 2
