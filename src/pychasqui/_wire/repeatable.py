"""The bytes of a repeatable, as they are stored in its hash. Nothing else knows them. No I/O.

    MessagePack array: key, name of its jobs, pattern, data, limit, start_after_ms, end_before_ms, 0 and, only if it is
    not the default, what to do about missed fires

The data is a bin inside a bin. A pattern is {"Every": [interval_ms]} or {"Cron": [expression, tz or nil]}, a policy
"Skip", "FireOnce" or {"FireAll": [max_catchup]}. The 0 was meant to count the fires, but nobody reads it. Whatever
arrives, decoding returns a value or raises DecodeError; it takes the unusual shapes that the official engine takes.
"""

from __future__ import annotations

import sys
from typing import Any

from .._core.fire_plan import RepeatSpec
from ..errors import DecodeError, InvalidArgument, InvalidType
from ..schedule import MAX_U32, MAX_U64, MissedFiresPolicy, RepeatPattern
from .msgpack import MAX_DEPTH, decode_data, encode, end_of_value, is_array, is_map, read_head

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
_FEWEST = 7
_MAX_KEYS = 1000
# In the order in which the official engine numbers them.
_PATTERNS = ("Cron", "Every")
_POLICIES = ("Skip", "FireOnce", "FireAll")
_NIL = b"\xc0"


def encode_spec(spec: RepeatSpec) -> bytes:
    """Byte for byte what the official producers write."""
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


def decode_spec(data: bytes) -> RepeatSpec:
    """The repeatable that `data` starts with; DecodeError also if it could never be fired."""
    fields = _split(data)
    missed_fires = fields.get("missed_fires")
    try:
        return RepeatSpec(
            key=_text(fields, "key"),
            job_name=_text(fields, "job_name"),
            pattern=_read_pattern(_value(fields, "pattern")),
            payload=_read_bytes(_read_bytes(fields.get("payload", _NIL))),
            limit=_unsigned_or_none(fields, "limit") or None,  # the official engine takes 0 for no limit
            start_after_ms=_unsigned_or_none(fields, "start_after_ms"),
            end_before_ms=_unsigned_or_none(fields, "end_before_ms"),
            missed_fires=MissedFiresPolicy.skip() if missed_fires is None else _read_policy(decode_data(missed_fires)),
        )
    except (InvalidArgument, InvalidType) as error:
        raise DecodeError(f"the repeatable cannot be fired: {error}") from error


def _split(data: bytes) -> dict[str, bytes]:
    """The fields of a repeatable that was written as an array or a map, each still encoded."""
    keyed = is_map(data[0]) if data else False
    if not keyed and not (data and is_array(data[0])):
        raise DecodeError("the repeatable is neither an array nor a map")
    position, count = read_head(data, 0)
    if not _FEWEST <= count <= len(_FIELDS) and not (keyed and count <= _MAX_KEYS):
        raise DecodeError(f"the repeatable has {count} fields, not {_FEWEST} to {len(_FIELDS)}")
    fields: dict[str, bytes] = {}
    for index in range(count):
        name = _FIELDS[index] if not keyed else ""
        if keyed:
            start, position = position, _end(data, position)
            name = _read_tag(decode_data(data[start:position]), _FIELDS, "a key of the repeatable")
        start, position = position, _end(data, position)
        if name in fields:
            raise DecodeError(f"the repeatable has {name} twice")
        if name in _FIELDS:
            fields[name] = data[start:position]
    return fields


def _read_pattern(value: Any) -> RepeatPattern:
    tag, content = _read_tagged(value, _PATTERNS, "pattern")
    if tag == "Every":
        fields = _struct(content, ("interval_ms",), "Every")
        return RepeatPattern.every(_unsigned(fields.get("interval_ms"), MAX_U64, "interval_ms"))
    if tag == "Cron":
        fields = _struct(content, ("expression", "tz"), "Cron")
        tz = None if fields.get("tz") is None else _as_text(fields["tz"], "tz")
        return RepeatPattern.cron(_as_text(fields.get("expression"), "expression"), tz)
    raise DecodeError(f"pattern must be Every or Cron, not {tag!r}"[:200])


def _read_policy(value: Any) -> MissedFiresPolicy:
    tag, content = _read_tagged(value, _POLICIES, "missed_fires")
    if tag == "FireAll":
        max_catchup = _unsigned(
            _struct(content, ("max_catchup",), "FireAll").get("max_catchup"), MAX_U32, "max_catchup"
        )
        # A user cannot ask to catch up on none; other producers can, and mean this.
        return MissedFiresPolicy.fire_all(max_catchup) if max_catchup else MissedFiresPolicy.skip()
    if tag not in _POLICIES or content is not None:
        raise DecodeError(f"missed_fires must be Skip, FireOnce or FireAll, not {value!r}"[:200])
    return MissedFiresPolicy.skip() if tag == "Skip" else MissedFiresPolicy.fire_once()


def _read_tagged(value: Any, tags: tuple[str, ...], what: str) -> tuple[str, Any]:
    if not isinstance(value, dict):
        return _read_tag(value, tags, what), None
    if len(value) != 1:
        raise DecodeError(f"{what} is a map of {len(value)}, not of one")
    ((tag, content),) = value.items()
    return _read_tag(tag, tags, what), content


def _read_tag(value: Any, names: tuple[str, ...], what: str) -> str:
    """A name, or its position among `names`; it need not be one of them."""
    if type(value) is int and value >= 0:
        return names[value] if value < len(names) else "unknown"
    return _as_text(value, what)


def _struct(content: Any, names: tuple[str, ...], what: str) -> dict[str, Any]:
    if isinstance(content, list) and len(content) == len(names):
        return dict(zip(names, content, strict=True))
    if isinstance(content, dict):
        return {_read_tag(key, names, f"a key of {what}"): value for key, value in content.items()}
    raise DecodeError(f"{what} must hold {', '.join(names)}, not {content!r}"[:200])


def _value(fields: dict[str, bytes], name: str) -> Any:
    return decode_data(fields.get(name, _NIL))


def _text(fields: dict[str, bytes], name: str) -> str:
    return _as_text(_value(fields, name), name)


def _as_text(value: Any, what: str) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"{what}: {error}") from error
    if not isinstance(value, str):
        raise DecodeError(f"{what} must be a str, not {value!r}"[:200])
    return value


def _unsigned_or_none(fields: dict[str, bytes], name: str) -> int | None:
    value = _value(fields, name)
    return None if value is None else _unsigned(value, MAX_U64, name)


def _unsigned(value: Any, bound: int, what: str) -> int:
    if type(value) is not int or not 0 <= value <= bound:
        raise DecodeError(f"{what} must be an int from 0 to {bound}, not {value!r}"[:200])
    return value


def _read_bytes(raw: bytes) -> bytes:
    """Bytes written as bin, as an array of small ints, or as a str that is not UTF-8; what follows is ignored."""
    raw = raw[: _end(raw, 0)]
    if 0xA0 <= raw[0] < 0xC0 or 0xD9 <= raw[0] < 0xDC:
        content = raw[read_head(raw, 0)[0] :]
        try:
            content.decode()
        except UnicodeDecodeError:
            return content
    value = decode_data(raw)
    if isinstance(value, list) and all(type(item) is int and 0 <= item <= 255 for item in value):
        return bytes(value)
    if not isinstance(value, bytes):
        raise DecodeError(f"payload must be bytes, not {value!r}"[:200])
    return value


def _end(data: bytes, start: int) -> int:
    return end_of_value(data, start, max_depth=MAX_DEPTH, max_memory=sys.maxsize)
