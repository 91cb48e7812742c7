"""The times at which the promoter looks, by a clock that the test sets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic

import pytest

from pychasqui._core.limits import PROMOTE_BATCH, PROMOTE_EVERY_S, PROMOTER_LEASE_MS
from pychasqui._redis.replies import OtherLeader, Promotion
from pychasqui._worker import leader
from pychasqui._worker.living_workers import LivingWorkers
from pychasqui._worker.promoter import ALERT_EVERY_S, ALERT_FOR_S, PromoterService
from pychasqui.errors import ConnectionLost, ReplyError
from tests.support.clock import FakeClock
from tests.support.memory_broker import MemoryBroker
from tests.support.waiting import first_below
from tests.support.worker_parts import ignore_death

NEVER = float("inf")
LOOK_S = PROMOTER_LEASE_MS / 1500


def followed(lease_left_ms: int, overdue_ms: int = 0, *, name: str = "other", was_cut: bool = False) -> Promotion:
    """The answer to a follower."""
    return Promotion(False, 0, 0, lease_left_ms, OtherLeader(name, was_cut, overdue_ms))


def promoter_of(broker: MemoryBroker) -> PromoterService:
    return PromoterService(broker, "me", on_death=ignore_death)


class PromoterBench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock().install(monkeypatch)
        self.broker = MemoryBroker()
        self.promoter = PromoterService(self.broker, "me", on_death=ignore_death, events_max_len=7)

    async def tick(self, reply: Promotion | None = None, *, gets_no_messages: bool = False) -> float:
        if reply is not None:
            self.broker.answer_with["try_to_lead_and_promote_batch"] = lambda *_: reply
        return await self.promoter._do_due_if_leader_and_choose_pause_s(gets_no_messages=gets_no_messages)

    @property
    def looks_at(self) -> float:
        """In how many seconds it looks because of a job that it knows of."""
        return self.promoter._next_due - self.clock.now


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> PromoterBench:
    return PromoterBench(monkeypatch)


class TestLeading:
    async def test_the_promoter_asks_for_the_lease_and_promotes_in_one_call(self, bench: PromoterBench) -> None:
        await bench.tick()
        assert bench.broker.asked("try_to_lead_and_promote_batch") == [("me", PROMOTER_LEASE_MS, PROMOTE_BATCH, 7)]

    async def test_an_empty_delayed_set_is_looked_at_often_enough_to_keep_the_lease(self, bench: PromoterBench) -> None:
        assert await bench.tick(Promotion(True, 0, 0, -1)) == LOOK_S
        assert LOOK_S * 1000 < PROMOTER_LEASE_MS
        assert bench.looks_at == NEVER

    async def test_the_promoter_sleeps_until_the_next_job_is_due(self, bench: PromoterBench) -> None:
        assert await bench.tick(Promotion(True, 0, 0, 200)) == PROMOTE_EVERY_S
        assert bench.looks_at == pytest.approx(0.2)

    async def test_the_promoter_looks_at_once_after_a_full_batch(self, bench: PromoterBench) -> None:
        assert await bench.tick(Promotion(True, PROMOTE_BATCH, 0, 0)) == 0.0
        assert await bench.tick(Promotion(True, PROMOTE_BATCH - 1, 1, 0)) == 0.0
        assert await bench.tick(Promotion(True, 1, 0, 0)) == 0.0  # full by its bytes
        assert await bench.tick(Promotion(True, 0, 1, 0)) == 0.0

    async def test_a_due_job_that_cannot_be_moved_is_asked_for_after_a_pause(self, bench: PromoterBench) -> None:
        assert await bench.tick(Promotion(True, 0, 0, 0)) > 0.0

    async def test_a_follower_tries_again_when_the_lease_ends(self, bench: PromoterBench) -> None:
        assert await bench.tick(followed(300)) == pytest.approx(0.301)
        assert await bench.tick(followed(60_000)) == LOOK_S
        assert await bench.tick(followed(1000)) == LOOK_S
        assert bench.looks_at == NEVER


class TestManyWorkers:
    async def test_workers_that_do_not_lead_look_seldom(self, bench: PromoterBench) -> None:
        promoter = PromoterService(bench.broker, "me", on_death=ignore_death, living_workers=LivingWorkers(1000))
        bench.broker.answer_with["try_to_lead_and_promote_batch"] = lambda *_: followed(300)
        for _ in range(10):
            assert 10 <= await promoter._do_due_if_leader_and_choose_pause_s(gets_no_messages=False) <= 30

    async def test_workers_look_as_often_as_ever_while_the_leader_moves_nothing(self, bench: PromoterBench) -> None:
        promoter = PromoterService(bench.broker, "me", on_death=ignore_death, living_workers=LivingWorkers(1000))
        bench.broker.answer_with["try_to_lead_and_promote_batch"] = lambda *_: followed(60_000, overdue_ms=10_000)
        assert await promoter._do_due_if_leader_and_choose_pause_s(gets_no_messages=False) == LOOK_S

    async def test_only_the_leader_subscribes_and_looks_again_once_it_hears(self, bench: PromoterBench) -> None:
        bench.broker.answer_with["try_to_lead_and_promote_batch"] = lambda *_: followed(300)
        await bench.promoter._subscribe_do_due_and_choose_pause_s()
        assert bench.broker.on_due is None
        bench.broker.answer_with["try_to_lead_and_promote_batch"] = lambda *_: Promotion(True, 0, 0, -1)
        assert await bench.promoter._subscribe_do_due_and_choose_pause_s() == 0.0
        assert await bench.promoter._subscribe_do_due_and_choose_pause_s() == LOOK_S
        assert bench.broker.on_due is not None


class TestHearing:
    async def test_a_leader_looks_when_an_announced_job_is_due(self, bench: PromoterBench) -> None:
        await bench.tick(Promotion(True, 0, 0, 5000))
        bench.promoter.apply_due_hint_if_leading(0.05)
        assert bench.looks_at == pytest.approx(0.05)

    async def test_a_message_about_a_later_job_changes_nothing(self, bench: PromoterBench) -> None:
        await bench.tick(Promotion(True, 0, 0, 5000))
        bench.promoter.apply_due_hint_if_leading(9)
        assert bench.looks_at == pytest.approx(5)

    async def test_a_follower_ignores_the_message(self, bench: PromoterBench) -> None:
        await bench.tick(followed(1000))
        bench.promoter.apply_due_hint_if_leading(0.05)
        assert bench.looks_at == NEVER

    async def test_a_message_right_behind_the_reply_is_not_forgotten(self, bench: PromoterBench) -> None:
        """The message stood right behind the reply, and was handled first."""
        await bench.tick(Promotion(True, 0, 0, 5000))
        bench.broker.meanwhile["try_to_lead_and_promote_batch"] = lambda *_: bench.promoter.apply_due_hint_if_leading(
            0.05
        )
        await bench.tick(Promotion(True, 0, 0, 5000))
        assert bench.looks_at == pytest.approx(0.05)

    async def test_a_job_that_came_unannounced_makes_it_alert_for_a_while(self, bench: PromoterBench) -> None:
        assert await bench.tick(Promotion(True, 1, 0, -1)) == ALERT_EVERY_S
        bench.clock.now += ALERT_FOR_S - 1
        assert await bench.tick(Promotion(True, 0, 0, -1)) == ALERT_EVERY_S
        bench.clock.now += 2
        assert await bench.tick(Promotion(True, 0, 0, -1)) == LOOK_S

    async def test_a_job_that_was_known_makes_the_promoter_no_more_alert(self, bench: PromoterBench) -> None:
        await bench.tick(Promotion(True, 0, 0, 200))
        bench.clock.now += 0.2
        assert await bench.tick(Promotion(True, 1, 0, -1)) == LOOK_S

    async def test_a_buried_member_that_was_not_announced_makes_the_promoter_alert(self, bench: PromoterBench) -> None:
        assert await bench.tick(Promotion(True, 0, 1, -1)) == ALERT_EVERY_S

    async def test_a_promoter_without_messages_is_alert_while_jobs_are_delayed(self, bench: PromoterBench) -> None:
        assert await bench.tick(Promotion(True, 0, 0, 5000), gets_no_messages=True) == ALERT_EVERY_S
        assert await bench.tick(Promotion(True, 0, 0, 5000), gets_no_messages=False) == ALERT_EVERY_S

    async def test_a_promoter_without_messages_is_at_rest_while_none_is_delayed(self, bench: PromoterBench) -> None:
        assert await bench.tick(Promotion(True, 0, 0, -1), gets_no_messages=True) == LOOK_S


class TestRescheduled:
    """The leader promotes jobs that this worker has rescheduled, and gets their due times by message."""

    async def test_a_leader_looks_when_it_is_due(self, bench: PromoterBench) -> None:
        await bench.tick(Promotion(True, 0, 0, -1))
        for delay_ms in (500, 200, 900):
            bench.promoter.apply_or_publish_due_hint_if_needed(delay_ms)
        assert bench.looks_at == pytest.approx(0.2)
        assert bench.broker.hints == []

    async def test_a_follower_publishes_the_due_time_and_follows_nothing(self, bench: PromoterBench) -> None:
        await bench.tick(followed(1000))
        bench.promoter.apply_or_publish_due_hint_if_needed(200)
        assert (bench.broker.hints, bench.looks_at) == ([200], NEVER)

    async def test_no_message_is_published_for_a_leader_that_looks_sooner(self, bench: PromoterBench) -> None:
        await bench.tick(followed(1000))
        for delay_ms in (500, 700, 600, 200, 300):
            bench.promoter.apply_or_publish_due_hint_if_needed(delay_ms)
        assert bench.broker.hints == [500, 200]
        bench.clock.now += 0.2
        bench.promoter.apply_or_publish_due_hint_if_needed(300)
        assert bench.broker.hints == [500, 200, 300]

    async def test_a_follower_does_not_publish_a_time_that_the_leader_finds_by_itself(
        self, bench: PromoterBench
    ) -> None:
        await bench.tick(followed(1000))
        bench.promoter.apply_or_publish_due_hint_if_needed(int(2000 * LOOK_S))
        assert bench.broker.hints == []


class TestHints:
    """Any client can publish any message: the due times are in Redis."""

    async def test_a_flood_of_messages_causes_a_look_every_few_ms_only(self, bench: PromoterBench) -> None:
        bench.promoter._looked_at = bench.clock.now
        await bench.tick(Promotion(True, 0, 0, 5000))
        for seconds in (0.0, -1.0, -NEVER, -1e308):
            bench.promoter.apply_due_hint_if_leading(seconds)
        assert bench.looks_at == pytest.approx(leader.HINTS_APART_S)

    @pytest.mark.parametrize("seconds", (float("nan"), NEVER, 1e308))
    async def test_a_message_that_is_no_time_changes_nothing(self, bench: PromoterBench, seconds: float) -> None:
        await bench.tick(Promotion(True, 0, 0, 5000))
        bench.promoter.apply_due_hint_if_leading(seconds)
        assert bench.looks_at == pytest.approx(5)

    async def test_a_due_job_that_cannot_be_moved_causes_no_busy_loop(self, bench: PromoterBench) -> None:
        assert await bench.tick(Promotion(True, 0, 0, 0)) >= ALERT_EVERY_S
        assert bench.looks_at == NEVER


class TestOtherLeader:
    async def test_a_lease_that_was_cut_is_named_once(
        self, bench: PromoterBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(3):
            await bench.tick(followed(10_000, name="x", was_cut=True))
        (record,) = caplog.records
        assert (record.levelno, "'x'" in record.getMessage()) == (logging.WARNING, True)
        assert bench.promoter.trouble is None

    async def test_a_leader_that_moves_nothing_is_trouble_until_it_does(
        self, bench: PromoterBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        await bench.tick(followed(1000, 60_000, name="x"))
        assert bench.promoter.trouble is None  # it may have been stored a moment ago
        bench.clock.now += leader.STALLED_S
        for _ in range(3):
            await bench.tick(followed(1000, 65_000, name="x"))
        assert bench.promoter.trouble == "delayed jobs wait: 'x' holds the promoter's lease and moves nothing"
        (record,) = caplog.records
        assert "due for 65 s, but 'x' holds the promoter's lease" in record.getMessage()
        await bench.tick(Promotion(True, 1, 0, -1))
        assert bench.promoter.trouble is None

    async def test_a_leader_that_is_a_little_late_is_no_trouble(self, bench: PromoterBench) -> None:
        for _ in range(20):
            bench.clock.now += 1
            await bench.tick(followed(1000, 4000))
        assert bench.promoter.trouble is None


async def test_bad_members_are_logged(bench: PromoterBench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.tick(Promotion(True, 3, 2, -1))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "2 delayed members" in record.getMessage()


class TestLife:
    """With the real clock."""

    async def run_until(self, promoter: PromoterService, is_enough: Callable[[], bool]) -> None:
        promoter.start()
        async with asyncio.timeout(20):
            while not is_enough():
                await asyncio.sleep(0.002)
        await promoter.end(timeout_s=1)

    async def test_a_message_wakes_the_promoter(self) -> None:
        broker = MemoryBroker()
        promoter = promoter_of(broker)
        promoter.start()
        async with asyncio.timeout(20):
            while not broker.asked("try_to_lead_and_promote_batch"):
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)

            async def woken() -> float:
                looks = len(broker.asked("try_to_lead_and_promote_batch"))
                assert broker.on_due is not None
                broker.on_due(0.02)
                started = monotonic()
                while len(broker.asked("try_to_lead_and_promote_batch")) == looks:
                    await asyncio.sleep(0.002)
                assert monotonic() - started > 0.01
                return monotonic() - started

            await first_below(0.8 * PROMOTE_EVERY_S, woken)
        await promoter.end(timeout_s=1)

    async def test_a_leader_lets_go_of_its_lease_at_the_end(self) -> None:
        broker = MemoryBroker()
        await self.run_until(promoter_of(broker), lambda: bool(broker.asked("try_to_lead_and_promote_batch")))
        assert broker.asked("release_promoter_lease_if_held") == [("me",)]

    async def test_a_follower_releases_no_lease(self) -> None:
        broker = MemoryBroker()
        broker.answer_with["try_to_lead_and_promote_batch"] = lambda *_: followed(1000)
        await self.run_until(promoter_of(broker), lambda: bool(broker.asked("try_to_lead_and_promote_batch")))
        assert broker.asked("release_promoter_lease_if_held") == []

    async def test_the_lease_is_left_to_expire_without_a_connection(self) -> None:
        broker = MemoryBroker()
        broker.connected_as = None
        await self.run_until(promoter_of(broker), lambda: bool(broker.asked("try_to_lead_and_promote_batch")))
        assert broker.asked("release_promoter_lease_if_held") == []

    async def test_the_promoter_outlasts_any_trouble(self) -> None:
        broker = MemoryBroker()
        troubles = [ConnectionLost("cut"), ReplyError("OOM full"), ReplyError("READONLY replica"), ReplyError("NOAUTH")]
        broker.troubles = list(troubles)
        await self.run_until(
            promoter_of(broker), lambda: bool(broker.asked("try_to_lead_and_promote_batch")) and not broker.troubles
        )
        assert broker.troubles == []
        assert broker.asked("try_to_lead_and_promote_batch")
