"""The values of unique_by as they stand in a job's id: equal values are written alike in every process. No I/O."""

from __future__ import annotations

import dataclasses
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from .wire_values import SCALARS, convert_to_type, dump_pydantic_model_if_one, to_wire_values

_STAND_FOR_OTHERS = (int, float, str, list)  # 1 is 1.0 for a float, a list is a set, text is a time
_WRITTEN_ALIKE = SCALARS | {Decimal, UUID, datetime, date, time, timedelta, set, frozenset}


def format_value_for_id(value: Any, annotation: Any) -> str:
    """JSON with sorted sets and maps. Python's own notation where JSON has none, as for inf and nan."""
    if type(value) in _STAND_FOR_OTHERS and type(value) is not annotation:
        value = _convert_to_annotation_unless_record(value, annotation)
    return _format_wire_value(value if type(value) in SCALARS else to_sorted_wire_values(value))


def _format_wire_value(wire: Any) -> str:
    try:
        text = msgspec.json.encode(wire).decode()
    except (TypeError, UnicodeError):
        return repr(wire)
    return repr(wire) if "null" in text and _contains_infinity_or_nan(wire) else text


def _convert_to_annotation_unless_record(value: Any, annotation: Any) -> Any:
    """The value that the task gets. Records stay as they are: a field that is left out may have another default each
    time.
    """
    try:
        converted = convert_to_type(annotation, value)
    except Exception:  # noqa: BLE001  annotations are the user's: this may be a type of pydantic
        return value
    parts = converted if isinstance(converted, list | tuple) else (converted,)
    return converted if all(type(part) in _WRITTEN_ALIKE for part in parts) else value


def to_sorted_wire_values(value: Any) -> Any:
    """The value as it travels, with sorted sets and maps."""
    try:
        return to_wire_values(value, order="deterministic")
    except TypeError:
        to_wire_values(value)  # raises if the value cannot travel; else it holds values that have no order
        return _to_wire_values_sorted_by_text(value)


def _to_wire_values_sorted_by_text(value: Any) -> Any:
    """The value with sets and maps sorted by how their values and keys are written: these need not have an order."""
    if isinstance(value, set | frozenset):
        return sorted(map(_to_wire_values_sorted_by_text, value), key=_format_wire_value)
    if isinstance(value, list | tuple):
        return [_to_wire_values_sorted_by_text(item) for item in value]
    fields = _read_fields_if_any(value)
    if fields is None:
        return to_wire_values(value)
    pairs = ((to_wire_values(key), _to_wire_values_sorted_by_text(item)) for key, item in fields.items())
    return dict(sorted(pairs, key=lambda pair: _format_wire_value(pair[0])))


def _read_fields_if_any(value: Any) -> dict[Any, Any] | None:
    """What a map or an object with fields holds; None for a scalar."""
    kind = type(value)
    if isinstance(value, dict):
        return value
    if isinstance(value, msgspec.Struct):
        names = [*kind.__struct_fields__]
    elif dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    elif hasattr(kind, "__attrs_attrs__"):
        names = [attribute.name for attribute in kind.__attrs_attrs__]
    else:
        return dump_pydantic_model_if_one(value)
    return {name: getattr(value, name) for name in names}


def _contains_infinity_or_nan(wire: Any) -> bool:
    if isinstance(wire, float):
        return not math.isfinite(wire)
    if isinstance(wire, dict):
        return any(_contains_infinity_or_nan(part) for pair in wire.items() for part in pair)
    return isinstance(wire, list | tuple) and any(map(_contains_infinity_or_nan, wire))
