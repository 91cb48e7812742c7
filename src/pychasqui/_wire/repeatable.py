"""The spec of a repeatable, as it is stored in its hash. No I/O.

    MessagePack array: key, name of its jobs, pattern, data, limit, start_after_ms, end_before_ms, 0 and, only if it is
    not the default, what to do about missed fires

The data is a bin inside a bin. A pattern is {"Every": [interval_ms]} or {"Cron": [expression, tz or nil]}, a policy
"Skip", "FireOnce" or {"FireAll": [max_catchup]}. The 0 was meant to count the fires, but nobody reads it. Decoding
returns a value or raises DecodeError; it accepts the unusual shapes that the official engine accepts.
"""

from __future__ import annotations

from hashlib import sha1
from typing import Any

from .._core.repeat_pattern import MissedFiresPolicy, RepeatPattern, RepeatSpec
from ..errors import DecodeError, InvalidArgument, InvalidType
from .msgpack import encode
from .struct_reader import (
    NIL,
    find_end_of_value,
    read_bytes,
    read_optional,
    read_text,
    read_u32,
    read_u64,
    read_variant,
    split_struct_into_raw_fields,
)

_FIELDS = (
    "key",
    "job_name",
    "pattern",
    "payload",
    "limit",
    "start_after_ms",
    "end_before_ms",
    "fired",
    "missed_fires",
)
_MIN_FIELDS = 7
HASH_FIELDS = ("spec", "fired", "retry")  # of the hash of a repeatable
# In the order in which the official engine numbers them.
_PATTERNS = ("Cron", "Every")
_POLICIES = ("Skip", "FireOnce", "FireAll")


def encode_spec(spec: RepeatSpec) -> bytes:
    """Returns byte for byte what the official producers write."""
    fields: list[object] = [
        spec.key,
        spec.job_name,
        _pack_pattern(spec.pattern),
        encode(spec.payload),
        spec.limit,
        spec.start_after_ms,
        spec.end_before_ms,
        0,
    ]
    if spec.missed_fires.kind == "fire-once":
        fields.append("FireOnce")
    elif spec.missed_fires.kind == "fire-all":
        fields.append({"FireAll": [spec.missed_fires.max_catchup]})
    try:
        return encode(fields)
    except UnicodeEncodeError:
        raise InvalidArgument(f"the repeatable {spec.key!a} has a lone surrogate, which UTF-8 cannot hold") from None


def _pack_pattern(pattern: RepeatPattern) -> dict[str, list[Any]]:
    if pattern.kind == "every":
        return {"Every": [pattern.interval_ms]}
    return {"Cron": [pattern.expression, pattern.tz]}


def encode_override_for_spec(spec: bytes, retry: bytes) -> bytes:
    """Returns the hash field retry: an override for this spec alone, because others replace specs without it."""
    return _digest_spec(spec) + retry


def read_override_if_for_this_spec(spec: bytes, stored: bytes) -> bytes:
    """Returns the override in the hash field retry; b"" if it was stored with another spec."""
    digest = _digest_spec(spec)
    return stored[len(digest) :] if stored.startswith(digest) else b""


def _digest_spec(spec: bytes) -> bytes:
    return sha1(spec, usedforsecurity=False).hexdigest().encode()


def decode_spec(data: bytes) -> RepeatSpec:
    """Returns the repeatable that `data` starts with; raises DecodeError also if it could never be fired."""
    fields = split_struct_into_raw_fields(data, "the repeatable", _FIELDS, min_array_fields=_MIN_FIELDS)

    def field_or_nil(name: str) -> bytes:
        return fields.get(name, NIL)

    missed_fires = fields.get("missed_fires")
    try:
        return RepeatSpec(
            key=read_text(field_or_nil("key"), "key"),
            job_name=read_text(field_or_nil("job_name"), "job_name"),
            pattern=_read_pattern(field_or_nil("pattern")),
            payload=_read_data(field_or_nil("payload")),
            limit=read_optional(read_u64, field_or_nil("limit"), "limit")
            or None,  # the official engine takes 0 for no limit
            start_after_ms=read_optional(read_u64, field_or_nil("start_after_ms"), "start_after_ms"),
            end_before_ms=read_optional(read_u64, field_or_nil("end_before_ms"), "end_before_ms"),
            missed_fires=MissedFiresPolicy.skip() if missed_fires is None else _read_missed_fires_policy(missed_fires),
        )
    except (InvalidArgument, InvalidType) as error:
        raise DecodeError(f"the repeatable cannot be fired: {error}") from error


def _read_pattern(raw: bytes) -> RepeatPattern:
    tag, content = read_variant(raw, _PATTERNS, "pattern")
    if tag == "Every":
        fields = split_struct_into_raw_fields(content, tag, ("interval_ms",), min_array_fields=1)
        return RepeatPattern.every(read_u64(fields.get("interval_ms", NIL), "interval_ms"))
    if tag == "Cron":
        fields = split_struct_into_raw_fields(content, tag, ("expression", "tz"), min_array_fields=2)
        tz = read_optional(read_text, fields.get("tz", NIL), "tz")
        return RepeatPattern.cron(read_text(fields.get("expression", NIL), "expression"), tz)
    raise DecodeError(f"pattern must be Every or Cron, not {tag!r}"[:200])


def _read_missed_fires_policy(raw: bytes) -> MissedFiresPolicy:
    tag, content = read_variant(raw, _POLICIES, "missed_fires")
    if tag == "FireAll":
        fields = split_struct_into_raw_fields(content, tag, ("max_catchup",), min_array_fields=1)
        max_catchup = read_u32(fields.get("max_catchup", NIL), "max_catchup")
        # A user cannot ask to catch up on none; other producers can, and mean this.
        return MissedFiresPolicy.fire_all(max_catchup) if max_catchup else MissedFiresPolicy.skip()
    if tag not in _POLICIES or content != NIL:
        raise DecodeError(f"missed_fires must be Skip, FireOnce or FireAll, not {tag!r}"[:200])
    return MissedFiresPolicy.skip() if tag == "Skip" else MissedFiresPolicy.fire_once()


def _read_data(raw: bytes) -> bytes:
    """The data is a bin inside a bin; what follows the inner one is ignored."""
    inner = read_bytes(raw, "payload")
    return read_bytes(inner[: find_end_of_value(inner, 0)], "payload")
