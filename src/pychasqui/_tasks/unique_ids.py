"""The values of unique_by as they stand in a job's id: equal values are written alike in every process. No I/O."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from .wire_values import SCALARS, convert_to_type, to_wire_values


def write_value_for_id(value: Any, annotation: Any) -> str:
    """JSON with sorted sets and maps. Python's own notation where JSON has none, as for inf and nan."""
    kind = type(value)
    if kind is int or kind is list:  # 1 for a float is 1.0, a list for a set is sorted
        value = _convert_to_float_or_set_if_annotated(value, annotation)
    wire = value if type(value) in SCALARS else _to_sorted_wire_values(value)
    try:
        text = msgspec.json.encode(wire).decode()
    except (TypeError, UnicodeError):
        return repr(wire)
    return repr(wire) if "null" in text and _contains_infinity_or_nan(wire) else text


def _convert_to_float_or_set_if_annotated(value: Any, annotation: Any) -> Any:
    if annotation is int:
        return value
    try:
        converted = convert_to_type(annotation, value)
    except Exception:  # noqa: BLE001  annotations are the user's: this may be a type of pydantic
        return value
    return converted if isinstance(converted, float | set | frozenset) else value


def _to_sorted_wire_values(value: Any) -> Any:
    try:
        return to_wire_values(value, order="deterministic")
    except TypeError:  # a set or a map of values that have no order
        return to_wire_values(value)


def _contains_infinity_or_nan(wire: Any) -> bool:
    if isinstance(wire, float):
        return not math.isfinite(wire)
    if isinstance(wire, dict):
        return any(_contains_infinity_or_nan(part) for pair in wire.items() for part in pair)
    return isinstance(wire, list | tuple) and any(map(_contains_infinity_or_nan, wire))
