"""Finds the value within data that cannot travel in a job: its path and what is wrong with it, and never the value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._core.user_objects import class_name_of
from .._wire.msgpack import encode_data
from .._wire.msgpack_scan import MAX_DEPTH
from ..errors import UnsupportedData
from .data_error import DataMismatch
from .wire_values import to_wire_values

MAX_KEY_CHARS = 50
_TOO_DEEP = f"is nested deeper than {MAX_DEPTH} levels, or contains itself"


def find_unencodable_value_if_any(data: Mapping[str, Any]) -> DataMismatch | None:
    """Returns where data cannot be encoded, and why; None if all of it can."""
    path, value, problem = "$", data, _find_encoding_problem_if_any(data)
    while problem is not None:
        found = next(
            (
                (step, part)
                for step, part in _iterate_parts_with_path_steps(value)
                if _find_encoding_problem_if_any(part) is not None
            ),
            None,
        )
        if found is None:
            return DataMismatch(path, _find_key_problem_if_any(value) or problem)
        path, value = path + found[0], found[1]
        problem = _find_encoding_problem_if_any(value)
        if problem == _TOO_DEEP:
            return DataMismatch(path, problem)
    return None


def _iterate_parts_with_path_steps(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a value, each with its step of the path."""
    if isinstance(value, dict):
        return ((_make_path_step(key), part) for key, part in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ((f"[{index}]", part) for index, part in enumerate(value))
    kind = type(value)
    named = (getattr(kind, name, None) for name in ("__struct_fields__", "__dataclass_fields__", "model_fields"))
    fields = next(filter(None, named), None) or [one.name for one in getattr(kind, "__attrs_attrs__", ())]
    return ((f".{name}", getattr(value, name)) for name in fields if hasattr(value, name))


def _make_path_step(key: Any) -> str:
    """The step of a key in a dict. One that reads as a name is shown; any other may be a value, as an address is."""
    is_name = isinstance(key, str) and len(key) <= MAX_KEY_CHARS and key.isidentifier()
    return f".{key}" if is_name else "[...]"


def _find_encoding_problem_if_any(value: Any) -> str | None:
    try:
        encode_data(to_wire_values(value))
    except UnsupportedData as error:
        text = str(error)
        if "nested" in text or "contains itself" in text:
            return _TOO_DEEP
        return text.removeprefix("data ") if text.startswith("data ") else "cannot be encoded"
    except TypeError as error:
        return str(error).replace("Encoding objects of type", "objects of type")[:200]
    except RecursionError:
        return _TOO_DEEP
    except Exception as error:  # noqa: BLE001  the value is the user's object, which may raise anything
        return (
            "cannot be encoded"
            if isinstance(error, ValueError)
            else f"raised {class_name_of(error)[:100]} when encoded"
        )
    return None


def _find_key_problem_if_any(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    problem = next(filter(None, map(_find_encoding_problem_if_any, value)), None)
    return None if problem is None else f"has a key that {problem}"
