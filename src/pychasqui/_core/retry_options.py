"""The retry options of a job and of a worker, and their checks; `retry_delay.py` computes with them.

BackoffSpec and RetryOverride are a job's own and travel in its envelope. RetryPolicy is a worker's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import msgspec

from ..errors import InvalidArgument, InvalidType
from .limits import MAX_U32, MAX_U64

KINDS = ("fixed", "exponential")

LONGEST_DELAY_MS = 30_000  # of a worker without a setting, here and in the official engine

# These bounds are checked when an envelope is decoded; the functions below check what a user passes.
Unsigned32 = Annotated[int, msgspec.Meta(ge=0, le=MAX_U32)]
Unsigned64 = Annotated[int, msgspec.Meta(ge=0)]


class BackoffFields(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The fields of a BackoffSpec as an envelope has them: an array of all five."""

    kind: str
    delay_ms: Unsigned64
    max_delay_ms: Unsigned64 | None
    multiplier: float | None
    jitter_ms: Unsigned64 | None


class BackoffSpec(BackoffFields, frozen=True, gc=False, array_like=False, forbid_unknown_fields=False):
    """How long to wait before each retry of one job.

    Build it with `fixed()` or `exponential()`. A field that is None takes the worker's setting. The bare constructor
    does not check its arguments, because envelopes may carry kinds that this version does not know; `add` checks them.
    """

    kind: str
    delay_ms: Unsigned64
    max_delay_ms: Unsigned64 | None = None
    multiplier: float | None = None
    jitter_ms: Unsigned64 | None = None

    @classmethod
    def fixed(cls, delay_ms: int, jitter_ms: int | None = None) -> BackoffSpec:
        """Waits `delay_ms` before every retry."""
        return _check_backoff(cls("fixed", delay_ms, jitter_ms=jitter_ms))

    @classmethod
    def exponential(
        cls, initial_ms: int, *, multiplier: float = 2.0, max_ms: int | None = None, jitter_ms: int | None = None
    ) -> BackoffSpec:
        """Waits `initial_ms` before the first retry, `multiplier` times as long before each further one."""
        return _check_backoff(cls("exponential", initial_ms, max_ms, multiplier, jitter_ms))

    def to_dict(self) -> dict[str, Any]:
        """Returns a mapping that `backoff` accepts, without the fields that are None."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}


class RetryFields(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The fields of a RetryOverride as an envelope has them: an array of both."""

    max_attempts: Unsigned32 | None
    backoff: BackoffFields | None


class RetryOverride(RetryFields, frozen=True, gc=False, array_like=False, forbid_unknown_fields=False):
    """The retry options of one job. A field that is None takes the worker's setting."""

    max_attempts: Unsigned32 | None = None
    backoff: BackoffSpec | None = None


def check_and_make_retry_override(
    attempts: int | None, backoff: int | BackoffSpec | Mapping[str, Any] | None
) -> RetryOverride | None:
    """Checks the `attempts` and `backoff` of an add; returns None if the job sets neither."""
    if attempts is None and backoff is None:
        return None
    return RetryOverride(
        max_attempts=None if attempts is None else _check_attempts(attempts),
        backoff=None if backoff is None else _check_and_make_backoff(backoff),
    )


def _check_attempts(attempts: int) -> int:
    """Refuses 0, which official producers accept: such a job would never run."""
    if _check_unsigned("attempts", attempts, MAX_U32) == 0:
        raise InvalidArgument("attempts is 0, must be at least 1: it counts every run, the first one too")
    return int(attempts)


def _check_and_make_backoff(backoff: object) -> BackoffSpec:
    if isinstance(backoff, BackoffSpec):
        return _check_backoff(backoff)
    if isinstance(backoff, Mapping):
        return _check_backoff(_make_backoff_from_mapping(backoff))
    if isinstance(backoff, int) and not isinstance(backoff, bool):
        return BackoffSpec("fixed", _check_unsigned("backoff", backoff, MAX_U64))
    raise InvalidType(f"backoff must be milliseconds (int), a BackoffSpec or a dict, not {backoff!r}")


def _make_backoff_from_mapping(backoff: Mapping[str, Any]) -> BackoffSpec:
    fields = dict(backoff)
    unknown = fields.keys() - set(BackoffSpec.__struct_fields__)
    if unknown:
        known = ", ".join(BackoffSpec.__struct_fields__)
        raise InvalidArgument(f"backoff has no {min(map(repr, unknown))}; its keys are {known}")
    for required in ("kind", "delay_ms"):
        if fields.get(required) is None:
            raise InvalidArgument(f"backoff[{required!r}] is required")
    return BackoffSpec(**fields)


def _check_backoff(spec: BackoffSpec) -> BackoffSpec:
    if not isinstance(spec.kind, str):
        raise InvalidType(f"backoff.kind must be a str, not {spec.kind!r}")
    if spec.kind not in KINDS:
        raise InvalidArgument(f"backoff.kind must be 'fixed' or 'exponential', not {spec.kind!r}")
    return BackoffSpec(
        kind=str.__str__(spec.kind),
        delay_ms=_check_unsigned("backoff.delay_ms", spec.delay_ms, MAX_U64),
        max_delay_ms=_check_unsigned_or_none("backoff.max_delay_ms", spec.max_delay_ms, MAX_U64),
        multiplier=None
        if spec.multiplier is None
        else _check_finite_and_not_negative("backoff.multiplier", spec.multiplier),
        jitter_ms=_check_unsigned_or_none("backoff.jitter_ms", spec.jitter_ms, MAX_U64),
    )


def _check_unsigned(field: str, value: int, bound: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"{field} must be an int, not {value!r}")
    if not 0 <= value <= bound:
        raise InvalidArgument(f"{field} must be between 0 and {bound}, not {value}")
    return int(value)


def _check_unsigned_or_none(field: str, value: int | None, bound: int) -> int | None:
    return None if value is None else _check_unsigned(field, value, bound)


def _check_finite_and_not_negative(field: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidType(f"{field} must be a number, not {value!r}")
    try:
        number = float(value)
    except OverflowError:
        _raise_number_out_of_bounds(field, value)
    if not math.isfinite(number) or number < 0:
        _raise_number_out_of_bounds(field, value)
    return number


def _raise_number_out_of_bounds(field: str, value: float) -> NoReturn:
    raise InvalidArgument(f"{field} must be a finite number, 0 or more, not {value!r}")


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's retry setting, for jobs without one of their own.

    initial_ms   the delay before the first retry
    multiplier   each further delay is this many times as long
    max_ms       the longest delay
    jitter_ms    up to this much is added at random
    """

    initial_ms: int = 100
    max_ms: int = LONGEST_DELAY_MS
    multiplier: float = 2.0
    jitter_ms: int = 100

    def __post_init__(self) -> None:
        for field in ("initial_ms", "max_ms", "jitter_ms"):
            _check_unsigned(f"retry.{field}", getattr(self, field), MAX_U64)
        _check_finite_and_not_negative("retry.multiplier", self.multiplier)
