"""The time of the server is asked for once in a while, and counted on in between."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from pychasqui._worker import server_clock as module
from pychasqui._worker.server_clock import ServerClock
from pychasqui.errors import ConnectionLost, RedisTrouble, ReplyError
from tests.support.waiting import eventually

AHEAD_MS = 3_600_000


class FakeServer:
    def __init__(self, trouble: RedisTrouble | None = None) -> None:
        self.asked = 0
        self.trouble = trouble

    async def read_server_time_ms(self) -> int:
        self.asked += 1
        await asyncio.sleep(0)
        if self.trouble is not None:
            raise self.trouble
        return int(time.time() * 1000) + AHEAD_MS

    def clock(self) -> ServerClock:
        return ServerClock(cast(Any, self))


async def test_many_questions_at_once_are_one_to_the_server() -> None:
    server = FakeServer()
    clock = server.clock()
    answers = await asyncio.gather(*(clock.ask_if_due_and_estimate_now_ms() for _ in range(100)))
    assert server.asked == 1
    assert all(abs(answer - time.time() * 1000 - AHEAD_MS) < 5000 for answer in answers)


async def test_the_server_is_asked_again_after_a_while(monkeypatch: Any) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "lease_clock", lambda: now)
    server = FakeServer()
    clock = server.clock()
    for _ in range(3):
        await clock.ask_if_due_and_estimate_now_ms()
        now += module.ASK_EVERY_S
    assert server.asked == 3


async def test_a_server_that_has_never_answered_is_waited_for(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "ASK_AGAIN_S", 0.001)
    server = FakeServer(ConnectionLost("away"))
    asking = asyncio.gather(*(server.clock().ask_if_due_and_estimate_now_ms() for _ in range(3)))
    await eventually(lambda: server.asked > 5)
    assert not asking.done()
    server.trouble = None
    assert all(abs(answer - time.time() * 1000 - AHEAD_MS) < 5000 for answer in await asking)


async def test_the_last_answer_stands_in_for_a_server_that_is_away(monkeypatch: Any) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "lease_clock", lambda: now)
    server = FakeServer()
    clock = server.clock()
    first = await clock.ask_if_due_and_estimate_now_ms()
    server.trouble = ConnectionLost("away")
    now += module.ASK_EVERY_S
    assert [await clock.ask_if_due_and_estimate_now_ms() for _ in range(3)] == [first + 1000 * module.ASK_EVERY_S] * 3
    assert server.asked == 2


async def test_the_clock_of_this_machine_stands_in_for_a_server_that_refuses_to_say() -> None:
    server = FakeServer(ReplyError("NOPERM no permissions to run the 'time' command"))
    clock = server.clock()
    for _ in range(3):
        assert abs(await clock.ask_if_due_and_estimate_now_ms() - time.time() * 1000) < 5000
    assert server.asked == 1


async def test_the_time_of_the_server_goes_on_while_this_machine_sleeps(monkeypatch: Any) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "lease_clock", lambda: now, raising=False)
    server = FakeServer()
    clock = server.clock()
    await clock.ask_if_due_and_estimate_now_ms()
    now += module.ASK_EVERY_S + 3600
    await clock.ask_if_due_and_estimate_now_ms()
    assert server.asked == 2
