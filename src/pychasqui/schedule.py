"""When a repeatable fires: patterns, policies, and the arithmetic on time. Pure: no I/O, no clock.

A pattern names *windows*, instants in milliseconds. `every` counts intervals from when the repeatable was stored or,
if that is later, from its start. `cron` follows a wall clock:

- Windows are whole seconds, strictly after the instant asked about.
- A time that the clock skips does not exist. A pattern with a single time of day fires as the clock jumps instead,
  so that a daily job is not lost; one with several times goes on with those that exist.
- A time that the clock shows twice is taken once, the first time. A pattern for all 24 hours fires both times, so
  that an hourly job has no hole.

A scheduler asks `plan_fires` what to do about a window that is due. If it comes late by no more than the grace, every
window up to now is fired: an interval shorter than the tick loses nothing. If it comes later than that, and a further
window has passed meanwhile, nobody was there to fire: those windows are *missed*, and the repeatable's policy says
which of them to make up for. A window without a successor is fired however late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any

from ._core.checks import check_int
from ._core.cron import DAY_S, LAST_WALL, parse_cron
from ._core.zones import find_zone
from .errors import InvalidArgument, InvalidType

MAX_U32 = 2**32 - 1
MAX_U64 = 2**64 - 1
# Windows after the year 9999 count as never; the score of a sorted set holds all milliseconds before it exactly.
LAST_MS = 253_402_300_799_999
# Twice what it takes until another leader fires after one has died, and less than an outage that anybody plans.
GRACE_MS = 15_000
MAX_FIRES = 500  # in one plan, which takes 10 ms; the rest follows with the next
# Further ahead than this no change of a clock can show a time again: clocks are less than two days apart.
_NEAR_S = 3 * DAY_S
# A pattern whose every time is skipped by a change of the clock has none: calendar and rules repeat after 400 years.
_MOST_CHANGES = 500
MAX_CATCHUP = 10_000  # missed ones, whatever the policy says; the official bound


@dataclass(frozen=True, slots=True)
class RepeatPattern:
    """When to fire. Build it with `every()` or `cron()`; anything that could never fire is refused."""

    kind: str
    expression: str | None = None
    tz: str | None = None
    interval_ms: int | None = None

    @staticmethod
    def every(interval_ms: int | timedelta) -> RepeatPattern:
        """Every so many milliseconds, the first time one interval after it was stored."""
        if isinstance(interval_ms, timedelta):
            interval_ms = _whole_milliseconds(interval_ms)
        return RepeatPattern("every", interval_ms=interval_ms)

    @staticmethod
    def cron(expression: str, tz: str | None = None) -> RepeatPattern:
        """By a cron expression of 5 fields, 6 (with seconds first) or 7 (with years last), or a nickname like @daily.

        `tz` is an IANA name, an offset ("+02:00") or UTC.
        """
        return RepeatPattern("cron", expression, tz)

    def __post_init__(self) -> None:
        if self.kind == "every":
            _refuse_given("every", expression=self.expression, tz=self.tz)
            _keep(self, interval_ms=int(check_int("interval_ms", self.interval_ms, 1, MAX_U64)))
        elif self.kind == "cron":
            _refuse_given("cron", interval_ms=self.interval_ms)
            if not isinstance(self.expression, str):
                raise InvalidType(f"expression must be a str, not {type(self.expression).__name__}")
            if self.tz is not None and not isinstance(self.tz, str):
                raise InvalidType(f"tz must be a str or None, not {type(self.tz).__name__}")
            parse_cron(self.expression)
            find_zone(self.tz)
            _keep(self, expression=str(self.expression), tz=None if self.tz is None else str(self.tz))
        else:
            raise InvalidArgument(f"kind of a repeat pattern must be 'every' or 'cron', not {self.kind!r}")

    def to_dict(self) -> dict[str, Any]:
        if self.kind == "every":
            return {"kind": "every", "interval_ms": self.interval_ms}
        pattern = {"kind": "cron", "expression": self.expression}
        return pattern if self.tz is None else {**pattern, "tz": self.tz}


@dataclass(frozen=True, slots=True)
class MissedFiresPolicy:
    """What to do about windows that passed while no scheduler was running. The default is `skip()`."""

    kind: str
    max_catchup: int | None = None

    @staticmethod
    def skip() -> MissedFiresPolicy:
        """Fire none of them, go on with the first window that is still to come."""
        return MissedFiresPolicy("skip")

    @staticmethod
    def fire_once() -> MissedFiresPolicy:
        """Fire the oldest of them, for all."""
        return MissedFiresPolicy("fire-once")

    @staticmethod
    def fire_all(max_catchup: int) -> MissedFiresPolicy:
        """Fire each of them, the oldest first and at most `max_catchup`."""
        return MissedFiresPolicy("fire-all", max_catchup)

    def __post_init__(self) -> None:
        if self.kind == "fire-all":
            check_int("max_catchup", self.max_catchup, 1, MAX_U32)
        elif self.kind in ("skip", "fire-once"):
            _refuse_given(self.kind, max_catchup=self.max_catchup)
        else:
            raise InvalidArgument(
                f"kind of a missed-fires policy must be 'skip', 'fire-once' or 'fire-all', not {self.kind!r}"
            )

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind} if self.max_catchup is None else {"kind": self.kind, "max_catchup": self.max_catchup}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatSpec:
    """A repeatable as it is stored. `payload` is the data of its jobs, encoded."""

    job_name: str
    pattern: RepeatPattern
    payload: bytes
    key: str = ""
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    missed_fires: MissedFiresPolicy = field(default_factory=MissedFiresPolicy.skip)

    def __post_init__(self) -> None:
        if not isinstance(self.key, str):
            raise InvalidType(f"key must be a str, not {type(self.key).__name__}")
        if self.limit is not None:
            check_int("limit", self.limit, 1, MAX_U64)
        for bound in ("start_after_ms", "end_before_ms"):
            if getattr(self, bound) is not None:
                check_int(bound, getattr(self, bound), 0, MAX_U64)
        if not self.key:
            _keep(self, key=default_key(self.job_name, self.pattern))


def default_key(job_name: str, pattern: RepeatPattern) -> str:
    """What tells a repeatable from others of its queue, unless it has a key of its own."""
    if pattern.kind == "every":
        return f"{job_name}::every:{pattern.interval_ms}"
    return f"{job_name}::cron:{pattern.expression}:{'UTC' if pattern.tz is None else pattern.tz}"


def read_pattern(value: object) -> RepeatPattern:
    """A user's `repeat`: a pattern, or a mapping of its fields."""
    if isinstance(value, RepeatPattern):
        return value
    return RepeatPattern(**_known("repeat", value, ("kind", "expression", "tz", "interval_ms")))


def read_missed_fires(value: object) -> MissedFiresPolicy:
    """A user's `missed_fires`: a policy, a mapping of its fields, or None."""
    if value is None:
        return MissedFiresPolicy.skip()
    if isinstance(value, MissedFiresPolicy):
        return value
    return MissedFiresPolicy(**_known("missed_fires", value, ("kind", "max_catchup")))


def _known(what: str, value: object, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidType(
            f"{what} must be an object of its class or a dict, not {type(value).__name__} {value!r}"[:300]
        )
    if unknown := value.keys() - set(names):
        raise InvalidArgument(f"{what} has no {min(map(repr, unknown))}; its keys are {', '.join(names)}")
    if "kind" not in value:
        raise InvalidArgument(f"{what}['kind'] is required")
    return dict(value)


def _refuse_given(kind: str, **fields: object) -> None:
    for name, value in fields.items():
        if value is not None:
            raise InvalidArgument(f"{name} is {value!r}, but {kind!r} has none")


def _keep(value: object, **fields: object) -> None:
    for name, content in fields.items():
        object.__setattr__(value, name, content)


def _whole_milliseconds(interval: timedelta) -> int:
    milliseconds, rest = divmod(interval, timedelta(milliseconds=1))
    if rest:
        raise InvalidArgument(f"interval_ms is {interval}, must be whole milliseconds")
    return milliseconds


# Windows


def next_fire(pattern: RepeatPattern, after_ms: int) -> int | None:
    """The first window strictly after that instant; None if there is none."""
    check_int("after_ms", after_ms, 0)
    if pattern.interval_ms is not None:
        fire_ms = after_ms + pattern.interval_ms
    else:
        second = _next_cron(pattern, after_ms // 1000) if after_ms < LAST_MS else None
        if second is None:
            return None
        fire_ms = second * 1000
    return fire_ms if fire_ms <= LAST_MS else None


def next_fires(pattern: RepeatPattern, n: int, after_ms: int) -> list[int]:
    """The first `n` windows strictly after that instant; fewer if it has no more."""
    return list(islice(_windows(pattern, after_ms), check_int("n", n, 0)))


def first_fire(spec: RepeatSpec, now_ms: int) -> int | None:
    """The first window of a repeatable that is stored now; None if it would never fire."""
    return _within_end(spec, next_fire(spec.pattern, max(now_ms, spec.start_after_ms or 0)))


def _windows(pattern: RepeatPattern, after_ms: int) -> Iterator[int]:
    fire_ms = next_fire(pattern, after_ms)
    while fire_ms is not None:
        yield fire_ms
        fire_ms = next_fire(pattern, fire_ms)


def _next_cron(pattern: RepeatPattern, after: int) -> int | None:
    assert pattern.expression is not None
    if after >= LAST_WALL + DAY_S:  # no zone is a day away from UTC
        return None
    cron, zone = parse_cron(pattern.expression), find_zone(pattern.tz)
    offset = zone.offset(after)
    wall = after + offset  # the last time on the wall clock that is out of question
    if not cron.is_every_hour and (printable := zone.shown_before(after)) is not None:
        wall = printable - 1
    changes = 0
    while changes < _MOST_CHANGES and (found := cron.next_after(wall)) is not None:
        if found - offset - after > 2 * _NEAR_S and zone.first_change(after, after + _NEAR_S) is None:
            # Whatever the clocks show until shortly before `found` lies between `wall` and `found`: nothing matches.
            after = found - offset - _NEAR_S
            offset = zone.offset(after)
            wall = after + offset
            continue
        change = zone.first_change(after, found - offset)
        if change is None:
            return found - offset
        # The clock is changed on the way to what was found: go on from there.
        changes += 1
        old_wall, offset = change + offset, zone.offset(change)
        new_wall = change + offset
        if cron.is_one_time_of_day and old_wall <= found < new_wall:
            return change
        wall = (new_wall if cron.is_every_hour else max(old_wall, new_wall)) - 1
        after = change
    return None


# The decision about a window that is due


@dataclass(frozen=True, slots=True)
class FirePlan:
    """What to do now: jobs for these windows, and the next score, None if that was the last of it."""

    fires_ms: tuple[int, ...]
    next_ms: int | None
    has_missed: bool = False  # nobody was there to fire in time, and the policy has decided
    goes_on: bool = False  # the next score is one that was missed, too: plan that one at once, with `made_up`
    given_up: int = 0  # windows that the cap of fire-all leaves out, counted up to MAX_FIRES


def plan_fires(
    spec: RepeatSpec, due_ms: int, *, fired: int, now_ms: int, grace_ms: int = GRACE_MS, made_up: int | None = None
) -> FirePlan:
    """Decide about a repeatable whose score is `due_ms` and that has fired `fired` times.

    The bounds and the limit hold for all fires. If more than MAX_FIRES are due in time, the next score is due as well.
    With `made_up` it goes on with windows that were missed, after this number of them has been made up for.
    """
    if due_ms > now_ms:
        return FirePlan((), due_ms)
    following = _following(spec, due_ms)
    is_late = now_ms - due_ms > grace_ms and following is not None and following < now_ms
    if is_late or made_up is not None:
        return _plan_missed(spec, due_ms, fired, now_ms, made_up or 0)
    fires = _due(spec, due_ms, now_ms, MAX_FIRES)
    allowed, may_go_on = _allowed(spec, fires, fired)
    return FirePlan(allowed, _following(spec, fires[-1]) if may_go_on else None)


def _plan_missed(spec: RepeatSpec, due_ms: int, fired: int, now_ms: int, made_up: int) -> FirePlan:
    cap = _most_made_up(spec.missed_fires) - made_up
    fires = _due(spec, due_ms, now_ms, min(cap, MAX_FIRES)) if cap > 0 else []
    allowed, may_go_on = _allowed(spec, fires, fired)
    if not may_go_on:
        return FirePlan(allowed, None, has_missed=True)
    next_missed = _following(spec, fires[-1]) if fires else due_ms
    is_missed = next_missed is not None and next_missed <= now_ms
    if is_missed and cap > len(fires):
        return FirePlan(allowed, next_missed, has_missed=True, goes_on=True)
    given_up = 0
    if is_missed and spec.missed_fires.kind == "fire-all":
        assert next_missed is not None
        given_up = len(_due(spec, next_missed, now_ms, MAX_FIRES))
    return FirePlan(allowed, _first_to_come(spec, due_ms, now_ms), has_missed=True, given_up=given_up)


def _allowed(spec: RepeatSpec, fires: list[int], fired: int) -> tuple[tuple[int, ...], bool]:
    """Those within the bounds and the limit, and whether the limit allows more."""
    earliest = spec.start_after_ms or 0
    left = MAX_U64 if spec.limit is None else max(0, spec.limit - fired)
    allowed = tuple(fire for fire in fires if fire >= earliest and _within_end(spec, fire))[:left]
    return allowed, len(allowed) < left


def _most_made_up(policy: MissedFiresPolicy) -> int:
    if policy.kind == "fire-all":
        return min(policy.max_catchup or 0, MAX_CATCHUP)
    return 1 if policy.kind == "fire-once" else 0


def _due(spec: RepeatSpec, due_ms: int, now_ms: int, most: int) -> list[int]:
    fires = [due_ms]
    while len(fires) < most and (following := _following(spec, fires[-1])) is not None and following <= now_ms:
        fires.append(following)
    return fires


def _following(spec: RepeatSpec, window_ms: int) -> int | None:
    return _within_end(spec, next_fire(spec.pattern, max(window_ms, spec.start_after_ms or 0)))


def _first_to_come(spec: RepeatSpec, due_ms: int, now_ms: int) -> int | None:
    """The first window after now. Intervals keep their beat."""
    interval_ms = spec.pattern.interval_ms
    if interval_ms is None:
        return _following(spec, now_ms)
    start_ms = max(due_ms, spec.start_after_ms or 0)
    beats = max(0, now_ms - start_ms) // interval_ms
    return _following(spec, start_ms + beats * interval_ms)


def _within_end(spec: RepeatSpec, window_ms: int | None) -> int | None:
    if window_ms is None or (spec.end_before_ms is not None and window_ms > spec.end_before_ms):
        return None
    return window_ms
