"""Which values can travel as arguments and results, and how they become what MessagePack holds.

msgspec writes dataclasses, attrs classes, Structs, TypedDicts and NamedTuples, dates and times, UUID, Decimal, Enum and
sets. Paths, IP addresses, URLs and models of pydantic are added here. No I/O; pydantic is not imported.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import PurePath
from typing import Any, Literal

import msgspec
from msgspec import inspect as types

SCALARS = frozenset({str, int, float, bool, type(None), bytes})
_AS_TEXT = (
    PurePath,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
)


# Templates return a str of their own, numpy a float: as what they are, and not by methods of theirs.
_SUBCLASSED: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__pos__),
    (float, float.__pos__),
    (bytes, lambda value: bytes.__getitem__(value, slice(None))),
)


REMEDY_FOR_UNKNOWN_NAME = "define it in the module, or import it there outside of `if TYPE_CHECKING:`"


class SpecialTypeError(ValueError):
    """A value is none of the types that travel as text. Its own text shows no value."""


_BYTES = (bytes, bytearray, memoryview)  # without it msgspec takes text for base64
_convert = msgspec.convert


def to_wire_values(value: Any, *, order: Literal["deterministic"] | None = None) -> Any:
    """Returns the value made of str, bytes, int, float, bool, None, list and dict; raises TypeError if it cannot.

    order   "deterministic" sorts sets and maps; raises TypeError if their values have no order
    """
    return msgspec.to_builtins(value, enc_hook=_encode_value_of_special_type, builtin_types=_BYTES, order=order)


def _encode_value_of_special_type(value: Any) -> Any:
    if isinstance(value, _AS_TEXT):
        return str(value)
    if (fields := dump_pydantic_model_if_one(value)) is not None:
        return fields
    kind = type(value)
    for plain, to_plain in _SUBCLASSED:
        if issubclass(kind, plain):
            return to_plain(value)
    if _is_of_pydantic(kind) and kind.__name__.endswith(("Url", "Dsn")):
        return str(value)
    raise TypeError(f"is a {kind.__qualname__}, which cannot travel in a job")


def dump_pydantic_model_if_one(value: Any) -> dict[str, Any] | None:
    kind = type(value)
    if not _is_of_pydantic(kind) or not hasattr(kind, "model_dump"):
        return None
    fields: dict[str, Any] = value.model_dump(by_alias=True, round_trip=True)  # without computed fields
    return fields


def convert_to_type(annotation: Any, value: Any) -> Any:
    """Converts what has travelled into the annotated type; raises msgspec.ValidationError if it does not fit."""
    return _convert(value, annotation, dec_hook=_decode_value_of_special_type, builtin_types=_BYTES)


def _decode_value_of_special_type(kind: type, value: Any) -> Any:
    if kind is object:
        return value
    if not _travels_as_text(kind):  # no class of the user's is called with what has travelled
        raise SpecialTypeError(f"{getattr(kind, '__qualname__', kind)} cannot travel in a job")
    if not isinstance(value, str):
        raise SpecialTypeError(f"Expected `str`, got `{type(value).__name__}`")
    try:
        return kind(value)
    except ValueError:
        raise SpecialTypeError(f"Invalid {kind.__name__}") from None


def _travels_as_text(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, _AS_TEXT)


def make_struct_reader(struct: Any, annotations: Iterable[Any]) -> Callable[[Any], Any]:
    """convert_to_type() for this Struct of these annotations, without what they do not need."""
    # hot: 0.2 us for two strs, 0.5 with the hook and the types
    if any(_contains_type(types.type_info(annotation), _NEED_CARE, set()) for annotation in annotations):
        return partial(convert_to_type, struct)
    return partial(_convert, type=struct)


_NEED_CARE = (types.CustomType, types.BytesType, types.ByteArrayType, types.MemoryViewType)


def _contains_type(info: Any, kinds: tuple[type, ...], seen: set[int]) -> bool:
    if id(info) in seen:
        return False
    seen.add(id(info))
    if isinstance(info, kinds):
        return True
    if isinstance(info, tuple | list):
        return any(_contains_type(item, kinds, seen) for item in info)
    if isinstance(info, types.Type | types.Field):
        fields = (getattr(info, field) for field in info.__struct_fields__ if field not in ("default", "cls"))
        return any(_contains_type(item, kinds, seen) for item in fields)
    return False


def explain_unsupported_type_if_any(annotation: Any) -> str:
    """Returns a sentence about the type within the annotation that cannot travel; "" if all of it can."""
    try:
        info = types.type_info(annotation)
    except NameError as error:
        return f"{error}; {REMEDY_FOR_UNKNOWN_NAME}"[:300]
    except Exception as error:  # noqa: BLE001  msgspec evaluates annotations of users' classes
        return str(error)[:300]
    return _explain_unsupported_type_in(info, set())


def _explain_unsupported_type_in(info: Any, seen: set[int]) -> str:
    if id(info) in seen:
        return ""
    seen.add(id(info))
    if isinstance(info, types.CustomType):
        is_known = info.cls is object or _travels_as_text(info.cls)
        return "" if is_known else f"{getattr(info.cls, '__qualname__', info.cls)} cannot travel in a job"
    if isinstance(info, tuple | list):
        return next(filter(None, (_explain_unsupported_type_in(item, seen) for item in info)), "")
    if isinstance(info, types.Type | types.Field):
        fields = (getattr(info, field) for field in info.__struct_fields__ if field not in ("default", "cls"))
        return next(filter(None, (_explain_unsupported_type_in(item, seen) for item in fields)), "")
    return ""


def _is_of_pydantic(kind: type) -> bool:
    return any(base.__module__.partition(".")[0] in ("pydantic", "pydantic_core") for base in kind.__mro__)
