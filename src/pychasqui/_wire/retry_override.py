"""A job's own retry settings, as they stand in its envelope and beside a repeatable.

override   array: max_attempts or nil, backoff or nil
backoff    array: kind, delay_ms, max_delay_ms or nil, multiplier or nil, jitter_ms or nil
"""

from __future__ import annotations

from .._core.retry_options import KINDS, BackoffSpec, RetryFields, RetryOverride, Unsigned32, Unsigned64
from ..errors import DecodeError
from .msgpack import encode
from .struct_reader import (
    NIL,
    read_float,
    read_optional,
    read_u32,
    read_u64,
    read_variant,
    split_struct_into_raw_fields,
)

# What decode_envelope() decodes in one call.
PackedBackoff = tuple[str, Unsigned64, Unsigned64 | None, float | None, Unsigned64 | None]
PackedRetry = tuple[Unsigned32 | None, PackedBackoff | None]


def encode_retry(retry: RetryOverride) -> bytes:
    """Encodes an override by itself, as it is stored beside a repeatable."""
    return encode(pack_retry(retry))


def pack_retry(retry: RetryFields) -> tuple[object, ...]:
    """Returns an override as MessagePack takes it."""
    backoff = retry.backoff
    if backoff is None:
        return (retry.max_attempts, None)
    multiplier = None if backoff.multiplier is None else float(backoff.multiplier)
    packed = (backoff.kind, backoff.delay_ms, backoff.max_delay_ms, multiplier, backoff.jitter_ms)
    return (retry.max_attempts, packed)


def unpack_retry(packed: PackedRetry) -> RetryOverride:
    """Returns an override in the shape that every known producer writes."""
    max_attempts, backoff = packed
    return RetryOverride(max_attempts, None if backoff is None else BackoffSpec(*backoff))


def decode_retry(raw: bytes) -> RetryOverride:
    """Reads an override in any shape."""
    fields = split_struct_into_raw_fields(raw, "retry", RetryOverride.__struct_fields__, min_array_fields=2)
    return RetryOverride(
        max_attempts=read_optional(read_u32, fields.get("max_attempts", NIL), "retry.max_attempts"),
        backoff=read_optional(_read_backoff, fields.get("backoff", NIL), "backoff"),
    )


def _read_backoff(raw: bytes, value_name: str) -> BackoffSpec:
    fields = split_struct_into_raw_fields(raw, value_name, BackoffSpec.__struct_fields__, min_array_fields=5)
    for name in ("kind", "delay_ms"):
        if name not in fields:
            raise DecodeError(f"{value_name} has no {name}")
    return BackoffSpec(
        kind=_read_kind(fields["kind"]),
        delay_ms=read_u64(fields["delay_ms"], "backoff.delay_ms"),
        max_delay_ms=read_optional(read_u64, fields.get("max_delay_ms", NIL), "backoff.max_delay_ms"),
        multiplier=read_optional(read_float, fields.get("multiplier", NIL), "backoff.multiplier"),
        jitter_ms=read_optional(read_u64, fields.get("jitter_ms", NIL), "backoff.jitter_ms"),
    )


def _read_kind(raw: bytes) -> str:
    kind, content = read_variant(raw, KINDS, "backoff.kind")
    if content != NIL:
        raise DecodeError("backoff.kind is a map, but not of one kind to nil")
    return kind
