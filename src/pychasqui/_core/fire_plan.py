"""What a scheduler does about a repeatable whose window is due. Pure: no I/O, no clock.

If a window comes late by no more than the grace, every window up to now is fired: an interval shorter than the tick
loses nothing. If it comes later than that, and a further window has passed meanwhile, no scheduler was there to fire:
those windows are *missed*, and the repeatable's policy says which of them to make up for. A window without a successor
is fired however late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .fire_times import next_fire
from .limits import MAX_U64
from .repeat_pattern import MissedFiresPolicy, RepeatSpec

# Twice what it takes until another leader fires after one has died, and less than an outage that anybody plans.
GRACE_MS = 15_000
MAX_FIRES = 500  # in one plan, which takes 10 ms; the rest follows with the next
MAX_CATCHUP = 10_000  # missed windows, whatever the policy says; the official bound


def find_first_fire_ms(spec: RepeatSpec, now_ms: int) -> int | None:
    """Returns the first window of a repeatable that is stored now; None if it would never fire."""
    return _find_next_fire_ms(spec, now_ms)


def find_fire_ms_after_pause(spec: RepeatSpec, due_ms: int, now_ms: int) -> int | None:
    """Returns the first window to come of a repeatable whose score was `due_ms` when it was paused; None if it has no
    more. Intervals keep their beat."""
    return (
        _keep_fire_unless_past_end(spec, due_ms)
        if due_ms > now_ms
        else _find_first_fire_ms_after_now(spec, due_ms, now_ms)
    )


@dataclass(frozen=True, slots=True)
class FirePlan:
    """What to do now: add jobs for these windows, and set the next score; None removes the repeatable."""

    fires_ms: tuple[int, ...]
    next_ms: int | None
    has_missed: bool = False  # no scheduler fired in time, and the policy has decided
    goes_on: bool = False  # the next score was missed as well: plan it at once, with `caught_up_count`
    given_up: int = 0  # windows past the cap of fire-all, counted up to MAX_FIRES


class _AllowedFires(NamedTuple):
    fires_ms: tuple[int, ...]
    may_go_on: bool  # the limit allows more of them


def plan_fires(
    spec: RepeatSpec,
    due_ms: int,
    *,
    fired_count: int,
    now_ms: int,
    grace_ms: int = GRACE_MS,
    caught_up_count: int | None = None,
) -> FirePlan:
    """Decides about a repeatable whose score is `due_ms` and that has fired `fired_count` times.

    The bounds and the limit hold for all fires. If more than MAX_FIRES are due in time, the next score is due as well.
    With `caught_up_count` it goes on with windows that were missed, after this number of them has been made up for.
    """
    if due_ms > now_ms:
        return FirePlan((), due_ms)
    following = _find_next_fire_ms(spec, due_ms)
    is_late = now_ms - due_ms > grace_ms and following is not None and following < now_ms
    if is_late or caught_up_count is not None:
        return _plan_missed_fires(spec, due_ms, fired_count, now_ms, caught_up_count or 0)
    fires = _list_due_fires_ms(spec, due_ms, now_ms, MAX_FIRES)
    allowed, may_go_on = _find_allowed_fires(spec, fires, fired_count)
    return FirePlan(allowed, _find_next_fire_ms(spec, fires[-1]) if may_go_on else None)


def _plan_missed_fires(spec: RepeatSpec, due_ms: int, fired_count: int, now_ms: int, caught_up_count: int) -> FirePlan:
    cap = _choose_max_missed_fires_to_make_up(spec.missed_fires) - caught_up_count
    fires = _list_due_fires_ms(spec, due_ms, now_ms, min(cap, MAX_FIRES)) if cap > 0 else []
    allowed, may_go_on = _find_allowed_fires(spec, fires, fired_count)
    if not may_go_on:
        return FirePlan(allowed, None, has_missed=True)
    next_missed = _find_next_fire_ms(spec, fires[-1]) if fires else due_ms
    is_missed = next_missed is not None and next_missed <= now_ms
    if is_missed and cap > len(fires):
        return FirePlan(allowed, next_missed, has_missed=True, goes_on=True)
    given_up = 0
    if is_missed and spec.missed_fires.kind == "fire-all":
        assert next_missed is not None
        given_up = len(_list_due_fires_ms(spec, next_missed, now_ms, MAX_FIRES))
    return FirePlan(allowed, _find_first_fire_ms_after_now(spec, due_ms, now_ms), has_missed=True, given_up=given_up)


def _find_allowed_fires(spec: RepeatSpec, fires: list[int], fired_count: int) -> _AllowedFires:
    """Returns those of the fires that are within the start, the end and the limit of the repeatable."""
    earliest = spec.start_after_ms or 0
    left = MAX_U64 if spec.limit is None else max(0, spec.limit - fired_count)
    allowed = tuple(fire for fire in fires if fire >= earliest and _keep_fire_unless_past_end(spec, fire))[:left]
    return _AllowedFires(allowed, may_go_on=len(allowed) < left)


def _choose_max_missed_fires_to_make_up(policy: MissedFiresPolicy) -> int:
    if policy.kind == "fire-all":
        return min(policy.max_catchup or 0, MAX_CATCHUP)
    return 1 if policy.kind == "fire-once" else 0


def _list_due_fires_ms(spec: RepeatSpec, due_ms: int, now_ms: int, max_fires: int) -> list[int]:
    fires = [due_ms]
    while (
        len(fires) < max_fires
        and (following := _find_next_fire_ms(spec, fires[-1])) is not None
        and following <= now_ms
    ):
        fires.append(following)
    return fires


def _find_next_fire_ms(spec: RepeatSpec, after_ms: int) -> int | None:
    return _keep_fire_unless_past_end(spec, next_fire(spec.pattern, max(after_ms, spec.start_after_ms or 0)))


def _find_first_fire_ms_after_now(spec: RepeatSpec, due_ms: int, now_ms: int) -> int | None:
    """Returns the first window after now. Intervals keep their beat."""
    interval_ms = spec.pattern.interval_ms
    if interval_ms is None:
        return _find_next_fire_ms(spec, now_ms)
    start_ms = max(due_ms, spec.start_after_ms or 0)
    beats = max(0, now_ms - start_ms) // interval_ms
    return _find_next_fire_ms(spec, start_ms + beats * interval_ms)


def _keep_fire_unless_past_end(spec: RepeatSpec, fire_ms: int | None) -> int | None:
    if fire_ms is None or (spec.end_before_ms is not None and fire_ms > spec.end_before_ms):
        return None
    return fire_ms
