"""The scheduler's decisions about due repeatables, its calls, and the times at which it looks again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

import pytest

from pychasqui import MissedFiresPolicy, RepeatPattern
from pychasqui._core.fire_plan import GRACE_MS, MAX_FIRES
from pychasqui._core.repeat_pattern import RepeatSpec
from pychasqui._core.retry_options import BackoffSpec, RetryOverride
from pychasqui._redis.repeatables import MAX_SPEC_BYTES, DueRepeatables, DueSpec, FireDecision, RepeatablesBroker
from pychasqui._redis.replies import OtherLeader
from pychasqui._wire.envelope import decode_envelope, read_extra_or_none
from pychasqui._wire.msgpack import encode_data
from pychasqui._wire.repeatable import encode_spec
from pychasqui._wire.retry_override import encode_retry
from pychasqui._worker import scheduler as module
from pychasqui._worker.living_workers import LivingWorkers
from pychasqui._worker.scheduler import (
    BATCH,
    BYTES_A_CALL,
    GATHER_S,
    JOBS_A_CALL,
    MAX_DECIDING_S,
    SchedulerService,
    _plan_fires_of_spec,
    batch_fires_and_yield_loop_turns,
)
from pychasqui.errors import DecodeError
from tests.support.clock import FakeClock
from tests.support.fake_surfaces import FakeRepeats
from tests.support.worker_parts import ignore_death
from tests.support.zones import without_zone_database

NOW = 1_800_000_000_000
MINUTE_MS = 60_000
NEVER = float("inf")
BERLIN_SPEC = encode_spec(
    RepeatSpec(job_name="tick", pattern=RepeatPattern.cron("0 9 * * *", "Europe/Berlin"), payload=b"\x07", key="k")
)


def spec(**options: Any) -> RepeatSpec:
    given: dict[str, Any] = {"pattern": RepeatPattern.every(MINUTE_MS), "payload": encode_data(7), "key": "k"}
    return RepeatSpec(job_name="tick", **(given | options))


def due(score: int = NOW, *, fired: int = 0, retry: bytes = b"", raw: bytes | None = None, **options: Any) -> DueSpec:
    stored = encode_spec(spec(**options)) if raw is None else raw
    return DueSpec("k", score, stored, fired, retry, len(stored))


def plan(one: DueSpec, now_ms: int = NOW) -> list[FireDecision]:
    return list(_plan_fires_of_spec(one, now_ms, GRACE_MS, lambda: None))


def windows(fires: FireDecision) -> list[Any]:
    return [read_extra_or_none(decode_envelope(envelope).extras, "s") for envelope in fires.envelopes]


class TestPlan:
    def test_a_due_repeatable_fires_and_moves_on(self) -> None:
        one = due()
        (fires,) = plan(one)
        assert (fires.due, fires.next_ms, fires.name) == (one, NOW + MINUTE_MS, "tick")
        (envelope,) = map(decode_envelope, fires.envelopes)
        assert (envelope.payload, envelope.created_at_ms, envelope.attempt) == (encode_data(7), NOW, 0)
        assert len(envelope.id) == 26

    def test_each_job_carries_its_scheduled_time_and_an_id_of_its_own(self) -> None:
        (fires,) = plan(due(NOW - 250, pattern=RepeatPattern.every(100)))
        assert windows(fires) == [NOW - 250, NOW - 150, NOW - 50]
        assert len({decode_envelope(envelope).id for envelope in fires.envelopes}) == 3
        assert fires.next_ms == NOW + 50

    def test_the_override_goes_into_each_job(self) -> None:
        retry = RetryOverride(3, BackoffSpec("fixed", 50))
        (fires,) = plan(due(retry=encode_retry(retry)))
        assert decode_envelope(fires.envelopes[0]).retry == retry

    def test_the_last_fire_of_a_limit_ends_it(self) -> None:
        (fires,) = plan(due(fired=2, limit=3))
        assert (len(fires.envelopes), fires.next_ms) == (1, None)

    def test_missed_windows_are_skipped_by_default(self, caplog: pytest.LogCaptureFixture) -> None:
        (fires,) = plan(due(NOW - 10 * MINUTE_MS))
        assert (fires.envelopes, fires.next_ms) == ([], NOW + MINUTE_MS)
        assert "was not fired in time" in caplog.text

    def test_missed_windows_are_made_up_for_by_policy(self) -> None:
        (fires,) = plan(due(NOW - 10 * MINUTE_MS, missed_fires=MissedFiresPolicy.fire_all(5)))
        assert windows(fires) == [NOW - minutes * MINUTE_MS for minutes in (10, 9, 8, 7, 6)]

    def test_large_jobs_that_were_missed_follow_each_other_in_several_decisions(self) -> None:
        payload = encode_data(b"x" * (BYTES_A_CALL // 3))
        one = due(NOW - 10 * MINUTE_MS, payload=payload, missed_fires=MissedFiresPolicy.fire_all(5))
        decisions = plan(one)
        assert [len(fires.envelopes) for fires in decisions] == [2, 2, 1]
        assert [window for fires in decisions for window in windows(fires)] == [
            NOW - minutes * MINUTE_MS for minutes in (10, 9, 8, 7, 6)
        ]
        for fires, follower in pairwise(decisions):
            assert (follower.due.score, follower.due.spec) == (fires.next_ms, one.spec)
        assert decisions[-1].next_ms == NOW + MINUTE_MS

    def test_many_missed_windows_follow_each_other_in_several_decisions(self) -> None:
        one = due(NOW - 10_000_000, pattern=RepeatPattern.every(1000), missed_fires=MissedFiresPolicy.fire_all(1200))
        decisions = plan(one)
        assert [len(fires.envelopes) for fires in decisions] == [MAX_FIRES, MAX_FIRES, 200]
        for fires, follower in pairwise(decisions):
            assert follower.due.score == fires.next_ms
        assert decisions[-1].next_ms == NOW + 1000

    @pytest.mark.parametrize(("missed", "said"), ((1300, "101 windows"), (9000, f"{MAX_FIRES} or more windows")))
    def test_windows_given_up_by_the_cap_are_logged(
        self, caplog: pytest.LogCaptureFixture, missed: int, said: str
    ) -> None:
        policy = MissedFiresPolicy.fire_all(1200)
        plan(due(NOW - missed * 1000, pattern=RepeatPattern.every(1000), missed_fires=policy))
        in_time, given_up = (record.getMessage() for record in caplog.records)
        assert "makes up for 1200" in in_time
        assert f"{said} are given up" in given_up

    def test_large_jobs_that_are_in_time_wait_for_the_next_tick(self) -> None:
        payload = encode_data(b"x" * (BYTES_A_CALL // 3))
        (fires,) = plan(due(NOW - 300, payload=payload, pattern=RepeatPattern.every(100)))
        assert windows(fires) == [NOW - 300, NOW - 200]
        assert fires.next_ms == NOW - 100

    @pytest.mark.parametrize(
        "broken",
        (
            due(raw=b""),
            due(raw=b"\xc1"),
            due(fired=-1),
            due(retry=b"\xc1"),
            due(raw=b"")._replace(size=MAX_SPEC_BYTES + 1),
        ),
        ids=("no spec", "no MessagePack", "no count", "no override", "too large"),
    )
    def test_a_repeatable_that_cannot_be_fired_is_refused(self, broken: DueSpec) -> None:
        with pytest.raises(DecodeError):
            plan(broken)


def fires_of(count: int, size: int = 1) -> FireDecision:
    return FireDecision(due(), NOW, "tick", [b"x" * size] * count)


class TestCalls:
    @pytest.fixture(autouse=True)
    def _standing_clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        FakeClock().install(monkeypatch)

    def test_small_decisions_travel_together(self) -> None:
        decisions = [fires_of(1) for _ in range(JOBS_A_CALL)]
        assert list(batch_fires_and_yield_loop_turns(iter(decisions))) == [decisions]

    def test_the_jobs_of_a_call_are_bounded(self) -> None:
        decisions = [fires_of(200) for _ in range(5)]
        assert [len(call or ()) for call in batch_fires_and_yield_loop_turns(iter(decisions))] == [2, 2, 1]

    def test_a_decision_with_more_jobs_goes_alone(self) -> None:
        decisions = [fires_of(1), fires_of(2 * JOBS_A_CALL), fires_of(1)]
        assert [len(call or ()) for call in batch_fires_and_yield_loop_turns(iter(decisions))] == [1, 1, 1]

    def test_decisions_without_a_job_take_no_room(self) -> None:
        decisions = [fires_of(0) for _ in range(3 * JOBS_A_CALL)]
        assert list(batch_fires_and_yield_loop_turns(iter(decisions))) == [decisions]

    def test_the_bytes_of_a_call_are_bounded(self) -> None:
        decisions = [fires_of(1, BYTES_A_CALL // 3) for _ in range(5)]
        assert [len(call or ()) for call in batch_fires_and_yield_loop_turns(iter(decisions))] == [2, 2, 1]

    def test_the_specs_count_as_bytes_of_a_call(self) -> None:
        fires = fires_of(1)
        large = fires._replace(due=fires.due._replace(spec=b"x" * (BYTES_A_CALL // 2)))
        assert [len(call or ()) for call in batch_fires_and_yield_loop_turns(iter([large] * 3))] == [1, 1, 1]

    def test_the_event_loop_turns_between_decisions_that_take_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        FakeClock(step_s=0.9 * MAX_DECIDING_S).install(monkeypatch)
        calls = list(batch_fires_and_yield_loop_turns(iter([fires_of(1) for _ in range(5)])))
        assert [call and len(call) for call in calls] == [None, None, 5]

    def test_decisions_that_take_very_long_travel_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        FakeClock(step_s=0.6 * GATHER_S).install(monkeypatch)
        calls = [call for call in batch_fires_and_yield_loop_turns(iter([fires_of(1) for _ in range(5)])) if call]
        assert [len(call) for call in calls] == [1, 2, 2]

    def test_a_repeatable_that_cannot_be_fired_is_no_part_of_a_call(self) -> None:
        decisions: list[Any] = [fires_of(1), (due(), "broken"), fires_of(1)]
        broken, call = batch_fires_and_yield_loop_turns(iter(decisions))
        assert call is not None
        assert (broken, len(call)) == ((due(), "broken"), 2)

    def test_order_is_kept(self) -> None:
        decisions = [fires_of(number) for number in range(100)]
        assert [
            fires for call in batch_fires_and_yield_loop_turns(iter(decisions)) for fires in call or ()
        ] == decisions

    def test_an_empty_plan_makes_no_call(self) -> None:
        assert list(batch_fires_and_yield_loop_turns(iter([]))) == []


def scheduler_of(repeats: FakeRepeats, *, tick_s: float, living: LivingWorkers | None = None) -> SchedulerService:
    broker = cast(RepeatablesBroker, repeats)
    return SchedulerService(broker, "me", on_death=ignore_death, living_workers=living, tick_s=tick_s)


class SchedulerBench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock().install(monkeypatch)
        self.repeats = FakeRepeats(NOW)
        self.living = LivingWorkers()
        self.scheduler = scheduler_of(self.repeats, tick_s=1.5, living=self.living)

    async def tick(self, next_due_ms: int = -1, *specs: DueSpec, leads: bool = True) -> float:
        other = None if leads else OtherLeader("other", was_cut=False, overdue_ms=0)
        self.repeats.found = DueRepeatables(leads, NOW, next_due_ms, list(specs), other)
        return await self.scheduler._do_due_if_leader_and_choose_pause_s(gets_no_messages=False)

    @property
    def looks_at(self) -> float:
        return self.scheduler._next_due - self.clock.now


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> SchedulerBench:
    return SchedulerBench(monkeypatch)


@pytest.fixture
def no_zone_database() -> Iterator[None]:
    with without_zone_database():
        yield


class TestTick:
    async def test_the_scheduler_looks_every_tick_without_repeatables(self, bench: SchedulerBench) -> None:
        assert (await bench.tick(), bench.looks_at) == (1.5, NEVER)

    async def test_the_scheduler_sleeps_until_the_next_is_due(self, bench: SchedulerBench) -> None:
        await bench.tick(250)
        assert bench.looks_at == pytest.approx(0.25)

    async def test_the_scheduler_sleeps_until_the_next_fire_of_a_fired_one(self, bench: SchedulerBench) -> None:
        await bench.tick(9000, due(NOW - 20, pattern=RepeatPattern.every(100)))
        assert bench.looks_at == pytest.approx(0.08)

    async def test_the_scheduler_waits_for_nothing_after_the_last_fire(self, bench: SchedulerBench) -> None:
        await bench.tick(-1, due(fired=2, limit=3))
        assert bench.looks_at == NEVER

    async def test_a_full_batch_may_not_be_all(self, bench: SchedulerBench) -> None:
        await bench.tick(0, due())
        assert bench.looks_at <= 0

    async def test_a_broken_one_is_set_aside_and_the_others_go_on(
        self, bench: SchedulerBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        await bench.tick(-1, due(), due(raw=b"\xc1"), due())
        assert [len(call) for call in bench.repeats.fired] == [2]
        ((broken, detail),) = bench.repeats.aside
        assert (broken.spec, "'k'" in detail) == (b"\xc1", True)
        assert [record.levelno for record in caplog.records] == [logging.ERROR]

    async def test_a_repeatable_whose_zone_this_machine_does_not_know_is_left_to_another_leader(
        self, bench: SchedulerBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        known = encode_spec(spec(pattern=RepeatPattern.cron("0 9 * * *", "Europe/Berlin")))
        unknown = due(raw=known.replace(b"Europe/Berlin", b"Europe/Atlant"))
        bench.living.set_count(2)
        assert await bench.tick(100, unknown, due()) == module.GIVE_WAY_S
        assert (bench.repeats.releases, bench.repeats.aside, bench.looks_at) == (1, [], NEVER)
        assert [len(call) for call in bench.repeats.fired] == [1]
        assert "lets another worker lead" in caplog.text
        await bench.tick(-1, unknown._replace(score=NOW - 5))  # another has fired it, and ended
        assert (bench.repeats.releases, bench.repeats.aside) == (2, [])
        await bench.tick(-1, unknown._replace(score=NOW - 5))  # no worker could
        assert (bench.repeats.releases, len(bench.repeats.aside)) == (2, 1)

    async def test_a_repeatable_whose_zone_the_only_worker_does_not_know_is_set_aside(
        self, bench: SchedulerBench
    ) -> None:
        known = encode_spec(spec(pattern=RepeatPattern.cron("0 9 * * *", "Europe/Berlin")))
        await bench.tick(-1, due(raw=known.replace(b"Europe/Berlin", b"Europe/Atlant")))
        assert (bench.repeats.releases, len(bench.repeats.aside)) == (0, 1)

    async def test_a_repeatable_with_a_zone_stays_due_on_a_machine_without_a_zone_database(
        self, bench: SchedulerBench, caplog: pytest.LogCaptureFixture, no_zone_database: None
    ) -> None:
        unknown = due(raw=BERLIN_SPEC)
        for _ in range(3):
            await bench.tick(-1, unknown, due())
        assert (bench.repeats.releases, bench.repeats.aside, len(bench.repeats.fired)) == (0, [], 3)
        assert ["install tzdata" in message for message in caplog.messages] == [True]
        assert bench.repeats.asked_for == [BATCH, BATCH + 1, BATCH + 1]

    async def test_a_process_without_a_zone_database_lets_others_lead_again_and_again(
        self, bench: SchedulerBench, no_zone_database: None
    ) -> None:
        unknown = due(raw=BERLIN_SPEC)
        bench.living.set_count(2)
        assert await bench.tick(-1, unknown) == module.GIVE_WAY_S
        assert await bench.tick(-1, unknown) == 1.5
        bench.clock.now += module.GIVE_WAY_AGAIN_S
        assert await bench.tick(-1, unknown) == module.GIVE_WAY_S
        assert (bench.repeats.releases, bench.repeats.aside) == (2, [])
        bench.clock.now += module.GIVE_WAY_AGAIN_S  # the time doubles: nobody fires anything while all give way
        assert await bench.tick(-1, unknown) == 1.5
        bench.clock.now += module.GIVE_WAY_AGAIN_S
        assert await bench.tick(-1, unknown) == module.GIVE_WAY_S

    async def test_repeatables_that_are_left_due_do_not_keep_the_others_out(
        self, bench: SchedulerBench, monkeypatch: pytest.MonkeyPatch, no_zone_database: None
    ) -> None:
        monkeypatch.setattr(module, "MAX_LEFT_DUE", 2)
        await bench.tick(-1, *(due(raw=BERLIN_SPEC)._replace(key=key) for key in "abc"))
        assert [one.key for one, *_ in bench.repeats.aside] == ["c"]

    async def test_a_repeatable_that_the_dead_letters_refuse_is_logged_and_the_others_go_on(
        self, bench: SchedulerBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.repeats.refusal = "ERR no ids left"
        await bench.tick(-1, due(raw=b"\xc1"), due())
        assert [len(call) for call in bench.repeats.fired] == [1]
        assert "no ids left" in caplog.text
        assert bench.scheduler.buried_count == 0

    async def test_a_broken_one_that_has_changed_meanwhile_does_not_count_as_set_aside(
        self, bench: SchedulerBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.repeats.refusal = None
        await bench.tick(-1, due(raw=b"\xc1"))
        assert (len(bench.repeats.aside), bench.scheduler.buried_count, caplog.messages) == (1, 0, [])

    async def test_decisions_in_vain_are_logged_and_cause_no_busy_loop(
        self, bench: SchedulerBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "chasqui.scheduler")
        bench.repeats.moves = False
        await bench.tick(0, due())
        assert bench.looks_at == pytest.approx(module.NOTHING_FIRED_PAUSE_S)
        assert "repeatable 'k' has changed since it was planned" in caplog.text

    async def test_a_follower_fires_nothing_and_tries_again_when_the_lease_ends(self, bench: SchedulerBench) -> None:
        assert await bench.tick(300, leads=False) == pytest.approx(0.301)
        assert await bench.tick(60_000, leads=False) == 1.5
        assert await bench.tick(-1, leads=False) == 1.5
        assert (bench.repeats.fired, bench.looks_at) == ([], NEVER)

    async def test_a_message_brings_the_next_look_forward(self, bench: SchedulerBench) -> None:
        await bench.tick(5000)
        bench.scheduler.apply_due_hint_if_leading(0.05)
        bench.scheduler.apply_due_hint_if_leading(9)
        assert bench.looks_at == pytest.approx(0.05)

    async def test_a_follower_ignores_the_message(self, bench: SchedulerBench) -> None:
        await bench.tick(-1, leads=False)
        bench.scheduler.apply_due_hint_if_leading(0.05)
        assert bench.looks_at == NEVER

    async def test_a_message_during_a_fire_is_not_forgotten(self, bench: SchedulerBench) -> None:
        await bench.tick()
        bench.repeats.meanwhile = lambda: bench.scheduler.apply_due_hint_if_leading(0.05)
        await bench.tick(9000, due())
        assert bench.looks_at == pytest.approx(0.05)

    async def test_a_late_fire_has_a_grace_of_several_ticks(self) -> None:
        slow = scheduler_of(FakeRepeats(NOW), tick_s=60)
        assert slow._grace_ms == 180_000
        assert scheduler_of(FakeRepeats(NOW), tick_s=0.01)._grace_ms == GRACE_MS
