"""Finds fields of pydantic's classes that are written under another name than they are read by. No I/O.

Their values would not arrive: the task would get the default of the field, or the job would be refused as if the value
were missing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


def describe_one_way_field_if_any(kind: type) -> str:
    """A sentence about the first such field of a model or dataclass of pydantic, with the remedy; "" if all arrive."""
    is_dataclass = dataclasses.is_dataclass(kind)  # msgspec writes its fields under their own names
    fields = getattr(kind, "__pydantic_fields__" if is_dataclass else "model_fields", None)
    if not isinstance(fields, Mapping) or _may_convert_names_itself(kind):
        return ""
    config: Mapping[str, Any] = getattr(kind, "__pydantic_config__" if is_dataclass else "model_config", None) or {}
    for name, field in fields.items():
        written = name if is_dataclass else field.serialization_alias or name
        read = _list_names_that_are_read(name, field.validation_alias, config)
        if written not in read and not field.exclude:
            remedy = "set populate_by_name=True in its config" if is_dataclass else "give it one alias= for both"
            places = " or ".join(map(repr, read)) or "a part of another field"
            return (
                f"{kind.__name__}.{name} is written as {written!r} and read as {places}, so that its value would be "
                f"lost: {remedy}"
            )
    return ""


def _may_convert_names_itself(kind: type) -> bool:
    """Whether a serializer or a validator of the whole class may write or read other names than those of its fields."""
    decorators = getattr(kind, "__pydantic_decorators__", None)
    validators = getattr(decorators, "model_validators", {}).values()
    return bool(getattr(decorators, "model_serializers", None)) or any(one.info.mode != "after" for one in validators)


def _list_names_that_are_read(name: str, alias: Any, config: Mapping[str, Any]) -> list[str]:
    by_name = alias is None or bool(config.get("populate_by_name") or config.get("validate_by_name"))
    found = [name] if by_name else []
    if alias is None or not config.get("validate_by_alias", True):
        return found
    for choice in getattr(alias, "choices", [alias]):
        path = [choice] if isinstance(choice, str) else getattr(choice, "path", [])
        if len(path) == 1 and isinstance(path[0], str):
            found.append(path[0])
    return found
