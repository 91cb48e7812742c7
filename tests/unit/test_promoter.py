"""When the promoter looks, on what terms, and when it looks again: by a clock that the test turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, cast

import pytest

from pychasqui._engine import leader
from pychasqui._engine import promoter as module
from pychasqui._engine.promoter import ALERT_EVERY_S, ALERT_FOR_S, LOOK_S, Promoter
from pychasqui._redis.broker import Broker
from pychasqui._redis.replies import Promotion
from pychasqui.config import PROMOTE_BATCH, PROMOTE_EVERY_S, PROMOTER_LEASE_MS
from pychasqui.errors import ConnectionLost, RedisTrouble, ReplyError

NEVER = float("inf")


class Call(NamedTuple):
    holder: str
    lease_ms: int
    batch: int
    must_lead: bool
    events_max_len: int


class FakeBroker:
    """Answers with what the test has laid out, the last of it for ever; `meanwhile` happens while it is on its way."""

    def __init__(self) -> None:
        self.connection = self
        self.replies: list[Promotion | RedisTrouble] = [Promotion(True, 0, 0, -1)]
        self.meanwhile: Callable[[], None] = lambda: None
        self.calls: list[Call] = []
        self.hears = True
        self.yielded: list[str] = []
        self.is_live = True
        self.on_due: Callable[[float], None] | None = None

    async def hear_of_due(self, on_due: Callable[[float], None]) -> bool:
        self.on_due = on_due
        return self.hears

    async def promote(
        self, holder: str, lease_ms: int, batch: int, *, must_lead: bool, events_max_len: int
    ) -> Promotion:
        self.calls.append(Call(holder, lease_ms, batch, must_lead, events_max_len))
        self.meanwhile()
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, RedisTrouble):
            raise reply
        return reply

    async def yield_promotion(self, holder: str) -> None:
        self.yielded.append(holder)

    def live_socket(self) -> object | None:
        return self if self.is_live else None


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.broker = FakeBroker()
        self.promoter = Promoter(cast(Broker, self.broker), "me", events_max_len=7)
        for place in (module, leader):
            monkeypatch.setattr(place, "monotonic", lambda: self.now)

    async def tick(self, reply: Promotion | None = None, *, hears: bool = True) -> float:
        if reply is not None:
            self.broker.replies = [reply]
        return await self.promoter._tick(hears=hears)

    @property
    def looks_at(self) -> float:
        """In how many seconds it looks because of a job that it knows of."""
        return min(self.promoter._own_due, self.promoter._next_due) - self.now


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


class TestLeading:
    async def test_it_asks_for_the_lease_and_moves_nothing_without_it(self, bench: Bench) -> None:
        await bench.tick()
        assert bench.broker.calls == [Call("me", PROMOTER_LEASE_MS, PROMOTE_BATCH, True, 7)]

    async def test_with_nothing_delayed_it_looks_often_enough_to_keep_the_lease(self, bench: Bench) -> None:
        assert await bench.tick(Promotion(True, 0, 0, -1)) == LOOK_S
        assert LOOK_S * 1000 < PROMOTER_LEASE_MS
        assert bench.looks_at == NEVER

    async def test_with_jobs_delayed_it_sleeps_until_the_next_is_due(self, bench: Bench) -> None:
        assert await bench.tick(Promotion(True, 0, 0, 200)) == PROMOTE_EVERY_S
        assert bench.looks_at == pytest.approx(0.2)

    async def test_after_a_full_batch_it_looks_at_once(self, bench: Bench) -> None:
        assert await bench.tick(Promotion(True, PROMOTE_BATCH, 0, 0)) == 0.0
        assert await bench.tick(Promotion(True, PROMOTE_BATCH - 1, 1, 0)) == 0.0
        assert await bench.tick(Promotion(True, 1, 0, 0)) == 0.0  # full by its bytes
        assert await bench.tick(Promotion(True, 0, 1, 0)) == 0.0

    async def test_what_is_due_and_cannot_be_moved_is_not_asked_for_without_a_pause(self, bench: Bench) -> None:
        assert await bench.tick(Promotion(True, 0, 0, 0)) > 0.0

    async def test_who_does_not_lead_tries_again_when_the_lease_ends(self, bench: Bench) -> None:
        assert await bench.tick(Promotion(False, 0, 0, 300)) == pytest.approx(0.301)
        assert await bench.tick(Promotion(False, 0, 0, 60_000)) == LOOK_S
        assert await bench.tick(Promotion(False, 0, 0, -1)) == LOOK_S
        assert bench.looks_at == NEVER


class TestHearing:
    async def test_a_leader_looks_when_what_it_hears_of_is_due(self, bench: Bench) -> None:
        await bench.tick(Promotion(True, 0, 0, 5000))
        bench.promoter.hear(0.05)
        assert bench.looks_at == pytest.approx(0.05)

    async def test_of_what_is_due_later_it_knows_enough(self, bench: Bench) -> None:
        await bench.tick(Promotion(True, 0, 0, 5000))
        bench.promoter.hear(9)
        assert bench.looks_at == pytest.approx(5)

    async def test_who_does_not_lead_has_nothing_to_do_with_it(self, bench: Bench) -> None:
        await bench.tick(Promotion(False, 0, 0, -1))
        bench.promoter.hear(0.05)
        assert bench.looks_at == NEVER

    async def test_what_it_hears_of_behind_the_answer_is_not_forgotten(self, bench: Bench) -> None:
        """The message stood right behind the reply, and was there first."""
        await bench.tick(Promotion(True, 0, 0, 5000))
        bench.broker.meanwhile = lambda: bench.promoter.hear(0.05)
        await bench.tick(Promotion(True, 0, 0, 5000))
        assert bench.looks_at == pytest.approx(0.05)

    async def test_a_job_that_came_unannounced_makes_it_alert_for_a_while(self, bench: Bench) -> None:
        assert await bench.tick(Promotion(True, 1, 0, -1)) == ALERT_EVERY_S
        bench.now += ALERT_FOR_S - 1
        assert await bench.tick(Promotion(True, 0, 0, -1)) == ALERT_EVERY_S
        bench.now += 2
        assert await bench.tick(Promotion(True, 0, 0, -1)) == LOOK_S

    async def test_one_that_it_knew_of_does_not(self, bench: Bench) -> None:
        await bench.tick(Promotion(True, 0, 0, 200))
        bench.now += 0.2
        assert await bench.tick(Promotion(True, 1, 0, -1)) == LOOK_S

    async def test_one_that_is_set_aside_came_unannounced_too(self, bench: Bench) -> None:
        assert await bench.tick(Promotion(True, 0, 1, -1)) == ALERT_EVERY_S

    async def test_who_cannot_hear_is_alert_while_jobs_are_delayed(self, bench: Bench) -> None:
        assert await bench.tick(Promotion(True, 0, 0, 5000), hears=False) == ALERT_EVERY_S
        assert await bench.tick(Promotion(True, 0, 0, 5000), hears=True) == ALERT_EVERY_S

    async def test_and_at_rest_while_none_is(self, bench: Bench) -> None:
        assert await bench.tick(Promotion(True, 0, 0, -1), hears=False) == LOOK_S


class TestOwn:
    """What this worker has rescheduled it promotes itself, leader or not."""

    async def test_it_looks_when_that_is_due_and_need_not_lead(self, bench: Bench) -> None:
        bench.promoter.expect(200)
        assert bench.looks_at == pytest.approx(0.2)
        bench.now += 0.2
        await bench.tick(Promotion(False, 1, 0, -1))
        assert bench.broker.calls[-1].must_lead is False
        assert bench.looks_at == NEVER

    async def test_before_it_must_lead(self, bench: Bench) -> None:
        bench.promoter.expect(200)
        await bench.tick(Promotion(False, 0, 0, -1))
        assert bench.broker.calls[-1].must_lead is True
        assert bench.looks_at == pytest.approx(0.2)

    async def test_the_soonest_counts(self, bench: Bench) -> None:
        for delay_ms in (500, 200, 900):
            bench.promoter.expect(delay_ms)
        assert bench.looks_at == pytest.approx(0.2)

    async def test_with_the_next_it_goes_on_until_none_is_left(self, bench: Bench) -> None:
        """Of several that were rescheduled it remembers the soonest only."""
        bench.promoter.expect(200)
        bench.now += 0.2
        await bench.tick(Promotion(False, 1, 0, 300))
        assert bench.looks_at == pytest.approx(0.3)

    async def test_what_is_rescheduled_while_it_looks_is_not_forgotten(self, bench: Bench) -> None:
        bench.promoter.expect(200)
        bench.now += 0.2
        bench.broker.meanwhile = lambda: bench.promoter.expect(100)
        await bench.tick(Promotion(False, 1, 0, 300))
        assert bench.looks_at == pytest.approx(0.1)

    async def test_it_came_as_expected(self, bench: Bench) -> None:
        bench.promoter.expect(200)
        bench.now += 0.2
        assert await bench.tick(Promotion(True, 1, 0, -1)) == LOOK_S


async def test_bad_members_are_told_of(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.tick(Promotion(True, 3, 2, -1))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "2 delayed members" in record.getMessage()


class TestLife:
    """With the real clock."""

    async def run_until(self, promoter: Promoter, is_enough: Callable[[], bool]) -> None:
        promoter.start()
        async with asyncio.timeout(2):
            while not is_enough():
                await asyncio.sleep(0.002)
        await promoter.end(patience_s=1)

    async def test_what_it_hears_of_wakes_it(self) -> None:
        broker = FakeBroker()
        promoter = Promoter(cast(Broker, broker), "me")
        promoter.start()
        async with asyncio.timeout(2):
            while not broker.calls:
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            assert broker.on_due is not None
            broker.on_due(0.02)
            started = asyncio.get_running_loop().time()
            while len(broker.calls) < 2:
                await asyncio.sleep(0.002)
        assert 0.01 < asyncio.get_running_loop().time() - started < 0.4
        await promoter.end(patience_s=1)

    async def test_a_leader_lets_go_of_its_lease_at_the_end(self) -> None:
        broker = FakeBroker()
        await self.run_until(Promoter(cast(Broker, broker), "me"), lambda: bool(broker.calls))
        assert broker.yielded == ["me"]

    async def test_who_does_not_lead_has_none_to_let_go_of(self) -> None:
        broker = FakeBroker()
        broker.replies = [Promotion(False, 0, 0, -1)]
        await self.run_until(Promoter(cast(Broker, broker), "me"), lambda: bool(broker.calls))
        assert broker.yielded == []

    async def test_without_a_connection_the_lease_is_left_to_end(self) -> None:
        broker = FakeBroker()
        broker.is_live = False
        await self.run_until(Promoter(cast(Broker, broker), "me"), lambda: bool(broker.calls))
        assert broker.yielded == []

    async def test_it_outlasts_any_trouble(self) -> None:
        broker = FakeBroker()
        troubles = [ConnectionLost("cut"), ReplyError("OOM full"), ReplyError("READONLY replica"), ReplyError("NOAUTH")]
        broker.replies = [*troubles, Promotion(True, 0, 0, -1)]
        await self.run_until(Promoter(cast(Broker, broker), "me"), lambda: len(broker.calls) > len(troubles))
        assert len(broker.calls) > len(troubles)
