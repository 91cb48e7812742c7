"""When a repeatable fires, as users say it: patterns, policies, and repeatables that have both. Pure: no I/O, no clock.

A pattern names *windows*, instants in milliseconds. `every` counts intervals from when the repeatable was stored or,
if that is later, from its start. `cron` follows a wall clock. `fire_times.py` finds the windows; what a scheduler does
about one that is due is decided in `fire_plan.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ..errors import InvalidArgument, InvalidType
from .checks import check_int
from .cron import parse_cron
from .limits import MAX_U32, MAX_U64
from .zones import find_zone


@dataclass(frozen=True, slots=True)
class RepeatPattern:
    """When to fire. Build it with `every()` or `cron()`; anything that could never fire is refused."""

    kind: str
    expression: str | None = None
    tz: str | None = None
    interval_ms: int | None = None

    @staticmethod
    def every(interval_ms: int | timedelta) -> RepeatPattern:
        """Fires every `interval_ms`, the first time one interval after it was stored."""
        if isinstance(interval_ms, timedelta):
            interval_ms = _timedelta_to_whole_ms(interval_ms)
        return RepeatPattern("every", interval_ms=interval_ms)

    @staticmethod
    def cron(expression: str, tz: str | None = None) -> RepeatPattern:
        """Fires by a cron expression of 5 fields, 6 (seconds first) or 7 (years last), or by a nickname like @daily.

        `tz` is an IANA name, an offset ("+02:00") or UTC.
        """
        return RepeatPattern("cron", expression, tz)

    def __post_init__(self) -> None:
        if self.kind == "every":
            _refuse_fields_of_other_kind("every", expression=self.expression, tz=self.tz)
            _set_frozen_fields(self, interval_ms=int(check_int("interval_ms", self.interval_ms, 1, MAX_U64)))
        elif self.kind == "cron":
            _refuse_fields_of_other_kind("cron", interval_ms=self.interval_ms)
            if not isinstance(self.expression, str):
                raise InvalidType(f"expression must be a str, not {type(self.expression).__name__}")
            if self.tz is not None and not isinstance(self.tz, str):
                raise InvalidType(f"tz must be a str or None, not {type(self.tz).__name__}")
            parse_cron(self.expression)
            find_zone(self.tz)
            _set_frozen_fields(self, expression=str(self.expression), tz=None if self.tz is None else str(self.tz))
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
        """Fires none of them, and goes on with the first window that is still to come."""
        return MissedFiresPolicy("skip")

    @staticmethod
    def fire_once() -> MissedFiresPolicy:
        """Fires the oldest of them, for all."""
        return MissedFiresPolicy("fire-once")

    @staticmethod
    def fire_all(max_catchup: int) -> MissedFiresPolicy:
        """Fires each of them, the oldest first, up to `max_catchup`."""
        return MissedFiresPolicy("fire-all", max_catchup)

    def __post_init__(self) -> None:
        if self.kind == "fire-all":
            check_int("max_catchup", self.max_catchup, 1, MAX_U32)
        elif self.kind in ("skip", "fire-once"):
            _refuse_fields_of_other_kind(self.kind, max_catchup=self.max_catchup)
        else:
            raise InvalidArgument(
                f"kind of a missed-fires policy must be 'skip', 'fire-once' or 'fire-all', not {self.kind!r}"
            )

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind} if self.max_catchup is None else {"kind": self.kind, "max_catchup": self.max_catchup}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatSpec:
    """A stored repeatable. `payload` is the encoded data of its jobs."""

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
            object.__setattr__(self, "key", make_default_repeatable_key(self.job_name, self.pattern))


def make_default_repeatable_key(job_name: str, pattern: RepeatPattern) -> str:
    """Returns the key of a repeatable for which the user gave none."""
    if pattern.kind == "every":
        return f"{job_name}::every:{pattern.interval_ms}"
    return f"{job_name}::cron:{pattern.expression}:{'UTC' if pattern.tz is None else pattern.tz}"


def check_and_make_repeat_pattern(value: object) -> RepeatPattern:
    """Checks a user's `repeat`: a pattern, or a mapping of its fields."""
    if isinstance(value, RepeatPattern):
        return value
    return RepeatPattern(**_check_mapping_fields("repeat", value, ("kind", "expression", "tz", "interval_ms")))


def check_and_make_missed_fires_policy(value: object) -> MissedFiresPolicy:
    """Checks a user's `missed_fires`: a policy, a mapping of its fields, or None."""
    if value is None:
        return MissedFiresPolicy.skip()
    if isinstance(value, MissedFiresPolicy):
        return value
    return MissedFiresPolicy(**_check_mapping_fields("missed_fires", value, ("kind", "max_catchup")))


def _check_mapping_fields(option: str, value: object, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidType(
            f"{option} must be an object of its class or a dict, not {type(value).__name__} {value!r}"[:300]
        )
    if unknown := value.keys() - set(names):
        raise InvalidArgument(f"{option} has no {min(map(repr, unknown))}; its keys are {', '.join(names)}")
    if "kind" not in value:
        raise InvalidArgument(f"{option}['kind'] is required")
    return dict(value)


def _refuse_fields_of_other_kind(kind: str, **fields: object) -> None:
    for name, value in fields.items():
        if value is not None:
            raise InvalidArgument(f"{name} is {value!r}, but {kind!r} has none")


def _set_frozen_fields(value: object, **fields: object) -> None:
    for name, content in fields.items():
        object.__setattr__(value, name, content)


def _timedelta_to_whole_ms(interval: timedelta) -> int:
    milliseconds, rest = divmod(interval, timedelta(milliseconds=1))
    if rest:
        raise InvalidArgument(f"interval_ms is {interval}, must be whole milliseconds")
    return milliseconds
