"""Whether annotations mention pydantic, and the reading of data by it. It is imported only if it is there already.

msgspec passes over `Annotated[int, Field(gt=0)]` without a word: if one annotation of a signature mentions pydantic,
pydantic reads all of it.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidArgument
from .data_error import (
    UNRELATED_ERRORS,
    DataMismatch,
    describe_error_of_users_class,
    make_mismatch_of_first_pydantic_error,
)
from .one_way_fields import describe_one_way_field_if_any

_MODULES = ("pydantic", "pydantic_core", "annotated_types")


class AnnotationSurvey:
    """Walks through annotations: `mentions_pydantic`, `one_way_field`, and the names that errors may show."""

    def __init__(self, annotations: Mapping[str, Any]) -> None:
        self.mentions_pydantic = False
        self.one_way_field = ""  # a sentence about a field whose value would not arrive
        self._names: set[str] = set(annotations)
        self._seen: dict[int, Any] = {}  # by id; kept, because a freed object would lend its id to another
        if "pydantic" in sys.modules:
            for annotation in annotations.values():
                self._survey_annotation(annotation)

    @property
    def field_names(self) -> frozenset[str]:
        return frozenset(self._names)

    def _survey_annotation(self, annotation: Any) -> None:
        if id(annotation) in self._seen:
            return
        self._seen[id(annotation)] = annotation
        if any(_is_meant_for_pydantic(one) for one in (annotation, *getattr(annotation, "__metadata__", ()))):
            self.mentions_pydantic = True
        for part in (
            *typing.get_args(annotation),
            typing.get_origin(annotation),
            _find_type_behind_alias_if_any(annotation),
        ):
            if part is not None and not isinstance(part, str | int | bytes):
                self._survey_annotation(part)
        if isinstance(annotation, type):
            if not self.one_way_field and _is_meant_for_pydantic(annotation):
                self.one_way_field = describe_one_way_field_if_any(annotation)
            self._survey_fields_of_record(annotation)

    def _survey_fields_of_record(self, kind: type) -> None:
        own = getattr(kind, "model_fields", None) if _is_meant_for_pydantic(kind) else None
        if isinstance(own, Mapping):
            self._names.update(own)
            self._names.update(field.alias for field in own.values() if field.alias)
        is_record = dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__") or isinstance(own, Mapping)
        if not is_record and not typing.is_typeddict(kind) and not hasattr(kind, "_fields"):
            return
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except Exception:  # noqa: BLE001  the class is the user's; the reader names what is wrong with it
            return
        for name, hint in hints.items():
            self._names.add(name)
            self._survey_annotation(hint)


def _find_type_behind_alias_if_any(annotation: Any) -> Any:
    """What a NewType or the alias of a `type` statement stands for; None if it is neither."""
    if isinstance(annotation, typing.NewType):
        return annotation.__supertype__
    if type(annotation).__name__ != "TypeAliasType":
        return None
    try:
        return annotation.__value__
    except Exception:  # noqa: BLE001  it is evaluated here; the reader names what is wrong with it
        return None


def _is_meant_for_pydantic(value: Any) -> bool:
    kind = value if isinstance(value, type) else type(value)
    if any(base.__module__.partition(".")[0] in _MODULES for base in kind.__mro__):
        return True
    return hasattr(value, "__get_pydantic_core_schema__") or hasattr(value, "__pydantic_validator__")


class PydanticReader:
    """read() returns the data as the annotated types, of those parameters that are there."""

    def __init__(self, annotations: Mapping[str, Any], required: frozenset[str], field_names: frozenset[str]) -> None:
        self._annotations = annotations
        self._field_names = field_names
        self._adapter = _make_type_adapter(annotations, required)

    def read(self, data: Any) -> dict[str, Any]:
        """Raises DataMismatchError."""
        from pydantic import ValidationError

        try:
            found: dict[str, Any] = self._adapter.validate_python(data)
        except ValidationError as error:
            if not _is_json_compatible(data):
                raise DataMismatchError(self._describe_misfit_with_remedy_if_strict(data, error)) from None
            return self._read_as_json(data)
        except UNRELATED_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001  a validator may raise anything
            raise DataMismatchError(describe_error_of_users_class(error, data, self._check_parameter)) from None
        return found

    def _check_parameter(self, name: str, value: Any) -> None:
        if name in self._annotations:
            _make_type_adapter({name: self._annotations[name]}, frozenset()).validate_python({name: value})

    def _describe_misfit_with_remedy_if_strict(self, data: Any, error: Any) -> DataMismatch:
        misfit = make_mismatch_of_first_pydantic_error(error, self._field_names)
        try:
            self._adapter.validate_python(data, strict=False)
        except Exception:  # noqa: BLE001  that it is strict is not what is wrong
            return misfit
        remedy = "beside bytes, or keys that are not text, a strict field must be one of Field(strict=False)"
        return misfit._replace(problem=f"{misfit.problem}; {remedy}")

    def _read_as_json(self, data: Any) -> dict[str, Any]:
        """A strict model takes the text of a UUID and the list of a set only from JSON, and other data from neither."""
        from pydantic import ValidationError
        from pydantic_core import to_json

        try:
            found: dict[str, Any] = self._adapter.validate_json(to_json(data, inf_nan_mode="constants"))
        except ValidationError as error:
            raise DataMismatchError(make_mismatch_of_first_pydantic_error(error, self._field_names)) from None
        return found


def _is_json_compatible(data: Any) -> bool:
    """Whether JSON would hold the same: it has no bytes, and its keys are text."""
    if isinstance(data, dict):
        return all(isinstance(key, str) for key in data) and all(map(_is_json_compatible, data.values()))
    return all(map(_is_json_compatible, data)) if isinstance(data, list) else isinstance(data, str | int | float | None)


class DataMismatchError(Exception):
    """Data does not fit a signature. Never leaves the package."""

    def __init__(self, misfit: DataMismatch) -> None:
        super().__init__(str(misfit))
        self.misfit = misfit


def _make_type_adapter(annotations: Mapping[str, Any], required: frozenset[str]) -> Any:
    from typing import NotRequired  # pydantic needs it; of typing's own it takes 3.12's

    from pydantic import TypeAdapter
    from typing_extensions import TypedDict

    fields = {name: one if name in required else NotRequired[one] for name, one in annotations.items()}
    try:
        return TypeAdapter(TypedDict("Arguments", fields))  # type: ignore[operator]
    except Exception:  # the one that is wrong is found below
        for name, annotation in annotations.items():
            try:
                TypeAdapter(annotation)
            except Exception as error:  # noqa: BLE001  pydantic runs code of users' classes
                reason = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
                raise InvalidArgument(f"{name}: pydantic does not take its annotation: {reason}") from None
        raise
