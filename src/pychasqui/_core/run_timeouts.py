"""RunTimeouts: how long a run may take, by the name of its job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ..errors import LONGEST_DELAY_S, InvalidArgument, InvalidType

Timeout = float | timedelta
GivenTimeout = Timeout | Mapping[str, Timeout]


@dataclass(frozen=True)
class RunTimeouts:
    """The timeouts of a worker in seconds: of all jobs, and of those with some names."""

    all_s: float | None = None
    by_name: Mapping[str, float] = field(default_factory=dict)

    def find_timeout_s(self, name: str) -> float | None:
        return self.by_name.get(name, self.all_s)

    def overridden_by(self, later: RunTimeouts) -> RunTimeouts:
        """Returns these timeouts, except where the later ones have one."""
        all_s = self.all_s if later.all_s is None else later.all_s
        return RunTimeouts(all_s, {**self.by_name, **later.by_name})

    @property
    def shortest_timeout_s(self) -> float | None:
        known = [*self.by_name.values(), *(() if self.all_s is None else (self.all_s,))]
        return min(known, default=None)


def check_and_make_run_timeouts(field: str, value: Any) -> RunTimeouts:
    """Checks what a worker is given as its timeout: nothing, a span, or a span for each name."""
    if value is None:
        return RunTimeouts()
    if isinstance(value, RunTimeouts):
        return value
    if not isinstance(value, Mapping):
        return RunTimeouts(check_timeout_s(field, value))
    for name in value:
        if not isinstance(name, str):
            raise InvalidType(f"{field} must have names of jobs as keys, not {type(name).__name__}")
    return RunTimeouts(None, {name: check_timeout_s(f"{field}[{name!r}]", one) for name, one in value.items()})


def check_timeout_s(field: str, value: Any) -> float:
    """Checks a span above 0, as seconds or as a timedelta, and returns seconds."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise InvalidType(f"{field} must be seconds or a timedelta, not {type(value).__name__} {value!r}"[:300])
    if not 0 < seconds <= LONGEST_DELAY_S:  # also false for nan
        shown = f"{seconds:g}" if abs(seconds) < 1e300 or seconds != seconds else "far too many"
        raise InvalidArgument(f"{field} is {shown} s, must be above 0 and at most {LONGEST_DELAY_S} (100 years)")
    return float(seconds)
