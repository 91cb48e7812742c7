"""The plan for a due window: in time, late, and after an outage of the scheduler."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pychasqui import MissedFiresPolicy, RepeatPattern
from pychasqui._core.fire_plan import GRACE_MS, MAX_CATCHUP, MAX_FIRES, FirePlan, find_first_fire_ms, plan_fires
from tests.support.repeatables import spec, windows

every, cron = RepeatPattern.every, RepeatPattern.cron
skip, fire_once, fire_all = MissedFiresPolicy.skip, MissedFiresPolicy.fire_once, MissedFiresPolicy.fire_all


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("UTC")).timestamp() * 1000)


NOW = ms("2027-01-01T12:00")
MINUTE_MS, DAY_MS = 60_000, 86_400_000


def test_the_first_window_is_one_interval_from_now_or_from_the_start() -> None:
    assert find_first_fire_ms(spec(), NOW) == NOW + MINUTE_MS
    assert find_first_fire_ms(spec(start_after_ms=NOW - 5), NOW) == NOW + MINUTE_MS
    assert find_first_fire_ms(spec(start_after_ms=NOW + 5), NOW) == NOW + 5 + MINUTE_MS
    assert find_first_fire_ms(spec(cron("@daily"), start_after_ms=NOW + DAY_MS), NOW) == ms("2027-01-03")
    assert find_first_fire_ms(spec(end_before_ms=NOW + MINUTE_MS), NOW) == NOW + MINUTE_MS
    assert find_first_fire_ms(spec(end_before_ms=NOW + MINUTE_MS - 1), NOW) is None
    assert find_first_fire_ms(spec(cron("0 0 0 1 1 * 2020")), NOW) is None


@pytest.mark.parametrize("policy", (skip(), fire_once(), fire_all(2)))
@pytest.mark.parametrize("late_ms", (0, 1, 999, MINUTE_MS - 1))
def test_a_due_window_fires_and_the_next_keeps_the_beat(policy: MissedFiresPolicy, late_ms: int) -> None:
    plan = plan_fires(spec(missed_fires=policy), NOW - late_ms, fired_count=0, now_ms=NOW)
    assert plan == FirePlan((NOW - late_ms,), NOW - late_ms + MINUTE_MS)


def test_a_repeatable_that_is_not_due_does_not_fire() -> None:
    assert plan_fires(spec(), NOW + 1, fired_count=0, now_ms=NOW) == FirePlan((), NOW + 1)


@pytest.mark.parametrize("policy", (skip(), fire_once(), fire_all(2)))
def test_an_interval_shorter_than_the_tick_fires_every_time(policy: MissedFiresPolicy) -> None:
    plan = plan_fires(spec(every(100), missed_fires=policy), NOW - 950, fired_count=0, now_ms=NOW)
    assert plan == FirePlan(tuple(range(NOW - 950, NOW + 1, 100)), NOW + 50)


@pytest.mark.parametrize("policy", (skip(), fire_once(), fire_all(2)))
def test_a_scheduler_within_its_grace_has_missed_nothing(policy: MissedFiresPolicy) -> None:
    secondly = spec(cron("* * * * * *"), missed_fires=policy)
    plan = plan_fires(secondly, NOW - GRACE_MS, fired_count=0, now_ms=NOW)
    assert plan == FirePlan(tuple(range(NOW - GRACE_MS, NOW + 1, 1000)), NOW + 1000)
    assert plan_fires(secondly, NOW - GRACE_MS - 1000, fired_count=0, now_ms=NOW).has_missed
    assert plan_fires(secondly, NOW - 2000, fired_count=0, now_ms=NOW, grace_ms=1000).has_missed


@pytest.mark.parametrize(
    ("policy", "fires"),
    (
        (skip(), []),
        (fire_once(), [-300]),
        (fire_all(3), [-300, -240, -180]),
        (fire_all(100), [-300, -240, -180, -120, -60, 0]),
    ),
)
@pytest.mark.parametrize("pattern", (every(60_000), cron("* * * * *", "Europe/Berlin")))
def test_the_policy_decides_after_five_minutes_away(
    pattern: RepeatPattern, policy: MissedFiresPolicy, fires: list[int]
) -> None:
    plan = plan_fires(spec(pattern, missed_fires=policy), NOW - 5 * MINUTE_MS, fired_count=0, now_ms=NOW)
    given_up = 6 - len(fires) if policy.kind == "fire-all" else 0
    windows_ms = tuple(NOW + second * 1000 for second in fires)
    assert plan == FirePlan(windows_ms, NOW + MINUTE_MS, has_missed=True, given_up=given_up)


@pytest.mark.parametrize("policy", (skip(), fire_once(), fire_all(2)))
def test_a_window_without_a_successor_fires_however_late(policy: MissedFiresPolicy) -> None:
    daily = spec(cron("@daily"), missed_fires=policy)
    assert plan_fires(daily, ms("2027-01-01"), fired_count=0, now_ms=NOW) == FirePlan(
        (ms("2027-01-01"),), ms("2027-01-02")
    )
    ended = spec(end_before_ms=NOW - 5 * MINUTE_MS, missed_fires=policy)
    assert plan_fires(ended, NOW - 5 * MINUTE_MS, fired_count=0, now_ms=NOW) == FirePlan((NOW - 5 * MINUTE_MS,), None)


def test_a_long_absence_costs_no_walk_and_keeps_the_beat() -> None:
    fast = spec(every(7), missed_fires=skip())
    plan = plan_fires(fast, 3, fired_count=0, now_ms=NOW)
    assert plan.next_ms is not None
    assert NOW < plan.next_ms <= NOW + 7
    assert plan.next_ms % 7 == 3


def test_the_end_holds_for_catching_up() -> None:
    ended = spec(end_before_ms=NOW - 2 * MINUTE_MS, missed_fires=fire_all(100))
    plan = plan_fires(ended, NOW - 5 * MINUTE_MS, fired_count=0, now_ms=NOW)
    assert plan == FirePlan(tuple(NOW - minutes * MINUTE_MS for minutes in (5, 4, 3, 2)), None, has_missed=True)
    assert plan_fires(spec(end_before_ms=NOW - 1), NOW, fired_count=0, now_ms=NOW) == FirePlan((), None)


def test_the_limit_holds_for_catching_up() -> None:
    limited = spec(limit=5, missed_fires=fire_all(100))
    plan = plan_fires(limited, NOW - 5 * MINUTE_MS, fired_count=3, now_ms=NOW)
    assert plan.fires_ms == (NOW - 5 * MINUTE_MS, NOW - 4 * MINUTE_MS)
    assert plan.next_ms is None
    assert plan_fires(limited, NOW, fired_count=5, now_ms=NOW) == FirePlan((), None)
    assert plan_fires(limited, NOW, fired_count=4, now_ms=NOW) == FirePlan((NOW,), None)
    assert plan_fires(limited, NOW, fired_count=3, now_ms=NOW) == FirePlan((NOW,), NOW + MINUTE_MS)


def test_no_window_fires_before_the_start() -> None:
    plan = plan_fires(spec(start_after_ms=NOW + 5), NOW, fired_count=0, now_ms=NOW)
    assert plan == FirePlan((), NOW + 5 + MINUTE_MS)


def test_fires_at_once_are_bounded_and_the_rest_follows() -> None:
    fast = spec(every(1))
    plan = plan_fires(fast, NOW - 5000, fired_count=0, now_ms=NOW)
    assert len(plan.fires_ms) == MAX_FIRES
    assert plan.next_ms == NOW - 5000 + MAX_FIRES


@pytest.mark.parametrize("pattern", (every(1000), cron("* * * * * *", "Europe/Berlin")))
def test_missed_windows_are_planned_in_parts_up_to_the_cap(pattern: RepeatPattern) -> None:
    greedy = spec(pattern, missed_fires=fire_all(2**32 - 1))
    due_ms = NOW - (MAX_CATCHUP + 50) * 1000
    plan = plan_fires(greedy, due_ms, fired_count=0, now_ms=NOW)
    fires = list(plan.fires_ms)
    while plan.goes_on:
        assert len(plan.fires_ms) <= MAX_FIRES
        assert plan.next_ms is not None
        plan = plan_fires(greedy, plan.next_ms, fired_count=len(fires), now_ms=NOW, caught_up_count=len(fires))
        fires += plan.fires_ms
    assert fires == [due_ms + n * 1000 for n in range(MAX_CATCHUP)]
    assert (plan.next_ms, plan.given_up) == (NOW + 1000, 51)


def test_the_last_part_of_what_was_missed_keeps_to_the_cap_although_it_is_in_time() -> None:
    catching_up = spec(every(1000), missed_fires=fire_all(MAX_FIRES + 3))
    due_ms = NOW - (MAX_FIRES + 5) * 1000
    plan = plan_fires(catching_up, due_ms, fired_count=0, now_ms=NOW)
    assert (len(plan.fires_ms), plan.next_ms, plan.goes_on) == (MAX_FIRES, NOW - 5000, True)
    plan = plan_fires(catching_up, NOW - 5000, fired_count=MAX_FIRES, now_ms=NOW, caught_up_count=MAX_FIRES)
    assert plan == FirePlan((NOW - 5000, NOW - 4000, NOW - 3000), NOW + 1000, has_missed=True, given_up=3)


def test_the_limit_ends_what_is_planned_in_parts() -> None:
    limited = spec(every(1000), limit=MAX_FIRES + 2, missed_fires=fire_all(10_000))
    plan = plan_fires(limited, NOW - 2000 * 1000, fired_count=MAX_FIRES, now_ms=NOW, caught_up_count=MAX_FIRES)
    assert (len(plan.fires_ms), plan.next_ms, plan.goes_on) == (2, None, False)


@settings(max_examples=50)
@given(
    pattern=st.one_of(st.integers(50, 5000).map(every), st.sampled_from([cron("* * * * * *"), cron("*/3 * * * * *")])),
    policy=st.sampled_from([skip(), fire_once(), fire_all(1)]),
    limit=st.none() | st.integers(1, 50),
    end_ms=st.none() | st.integers(0, 40_000),
    ticks=st.lists(st.integers(0, 10_000), max_size=8),
)
def test_a_scheduler_that_ticks_in_time_fires_each_window_once(
    pattern: RepeatPattern, policy: MissedFiresPolicy, limit: int | None, end_ms: int | None, ticks: list[int]
) -> None:
    end_before_ms = None if end_ms is None else NOW + end_ms
    repeatable = spec(pattern, missed_fires=policy, limit=limit, end_before_ms=end_before_ms)
    score = find_first_fire_ms(repeatable, NOW)
    fires: list[int] = []
    now_ms = NOW
    for wait_ms in ticks:
        now_ms += wait_ms
        while score is not None and score <= now_ms:
            plan = plan_fires(repeatable, score, fired_count=len(fires), now_ms=now_ms)
            fires.extend(plan.fires_ms)
            score = plan.next_ms
    assert fires == windows(pattern, NOW, min(now_ms, end_before_ms or now_ms))[:limit]
    if len(fires) == limit:
        assert score is None


@settings(max_examples=60)
@given(
    pattern=st.one_of(
        st.integers(1, 10**10).map(every),
        st.sampled_from(["* * * * *", "*/7 * * * * *", "0 9 * * MON-FRI", "30 2 L * *"]).map(
            lambda expression: cron(expression, "Europe/Berlin")
        ),
    ),
    policy=st.one_of(st.just(skip()), st.just(fire_once()), st.integers(1, 30).map(fire_all)),
    limit=st.none() | st.integers(1, 20),
    fired=st.integers(0, 20),
    late_ms=st.integers(0, 10**10),
    end_late_ms=st.none() | st.integers(-(10**9), 10**10),
    due_ms=st.integers(ms("1971-01-01"), ms("2060-01-01")),
)
def test_a_plan_stays_within_its_bounds(
    pattern: RepeatPattern,
    policy: MissedFiresPolicy,
    limit: int | None,
    fired: int,
    late_ms: int,
    end_late_ms: int | None,
    due_ms: int,
) -> None:
    now_ms = due_ms + late_ms
    end_before_ms = None if end_late_ms is None else max(0, due_ms + end_late_ms)
    assume(fired <= (limit or fired))
    repeatable = spec(pattern, missed_fires=policy, limit=limit, end_before_ms=end_before_ms)
    plan = plan_fires(repeatable, due_ms, fired_count=fired, now_ms=now_ms)
    assert list(plan.fires_ms) == sorted(set(plan.fires_ms))
    assert all(due_ms <= fire <= min(now_ms, end_before_ms or now_ms) for fire in plan.fires_ms)
    assert limit is None or fired + len(plan.fires_ms) <= limit
    if plan.has_missed:
        assert len(plan.fires_ms) <= {"skip": 0, "fire-once": 1}.get(policy.kind, policy.max_catchup or 0)
        assert plan.next_ms is None or plan.next_ms > now_ms
    if plan.next_ms is not None:
        assert plan.next_ms > (plan.fires_ms[-1] if plan.fires_ms else due_ms)
        assert end_before_ms is None or plan.next_ms <= end_before_ms
