"""Reads structs in every shape that the official consumer accepts, for envelopes, retry overrides and repeatables.

No known producer writes these: a struct as a map, keyed by field name (str or bin) or by position; text as a bin; bytes
as an array of small ints, or as a str that is not UTF-8; an enum by its number, or as a map of it to its content; heads
not in their shortest form; anything after the end. Raises DecodeError for everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec

from .._core.retry_options import Unsigned32, Unsigned64
from ..errors import DecodeError
from .msgpack import DECODER_REFUSALS
from .msgpack_scan import find_end_of_skipped_value, is_array, is_bin, is_map, is_str, read_head_end_and_length

NIL = b"\xc0"
# A struct has nine fields at most; reading each key of a map that fills a megabyte would take a second.
_MAX_KEYS = 1000
# What is skipped may be nested as deep as the official consumer follows it.
_MAX_SKIPPED_DEPTH = 1024

T = TypeVar("T")
_decode_str = msgspec.msgpack.Decoder(str).decode
_decode_bytes = msgspec.msgpack.Decoder(bytes).decode
_decode_bytes_or_ints = msgspec.msgpack.Decoder(bytes | list[Annotated[int, msgspec.Meta(ge=0, le=255)]]).decode
_decode_u32 = msgspec.msgpack.Decoder(Unsigned32).decode
_decode_u64 = msgspec.msgpack.Decoder(Unsigned64).decode
_decode_float = msgspec.msgpack.Decoder(float).decode


def split_struct_into_raw_fields(
    data: bytes, value_name: str, names: tuple[str, ...], *, min_array_fields: int
) -> dict[str, bytes]:
    """Returns the fields of the struct that `data` starts with, each still encoded."""
    is_keyed = is_map(data[0]) if data else False
    if not is_keyed and not (data and is_array(data[0])):
        raise DecodeError(f"{value_name} is neither an array nor a map")
    position, count = read_head_end_and_length(data, 0)
    if is_keyed and count > _MAX_KEYS:
        raise DecodeError(f"{value_name} is a map of {count}, more than {_MAX_KEYS}")
    if not is_keyed and not min_array_fields <= count <= len(names):
        raise DecodeError(f"{value_name} is an array of {count}, not of {min_array_fields} to {len(names)}")
    fields: dict[str, bytes] = {}
    for index in range(count):
        if is_keyed:
            start, position = position, find_end_of_value(data, position)
            name = read_label(data[start:position], names, f"a key of {value_name}")
        else:
            name = names[index]
        start, position = position, find_end_of_value(data, position)
        if name in fields:
            raise DecodeError(f"{value_name} has {name} twice")
        if name in names:
            fields[name] = data[start:position]
    return fields


def read_variant(raw: bytes, names: tuple[str, ...], value_name: str) -> tuple[str, bytes]:
    """Returns the label of an enum and its content, still encoded; NIL if it has none."""
    if not is_map(raw[0]):
        return read_label(raw, names, value_name), NIL
    start, count = read_head_end_and_length(raw, 0)
    if count != 1:
        raise DecodeError(f"{value_name} is a map of {count}, not of one")
    end = find_end_of_value(raw, start)
    return read_label(raw[start:end], names, value_name), raw[end:]


def read_label(raw: bytes, names: tuple[str, ...], value_name: str) -> str:
    """Returns a name written as str or bin, or as its position among `names`; it need not be one of them."""
    first = raw[0]
    if first < 0x80 or 0xCC <= first <= 0xCF:
        index = read_u64(raw, value_name)
        return names[index] if index < len(names) else "unknown"
    if is_str(first) or is_bin(first):
        return raw[read_head_end_and_length(raw, 0)[0] :].decode(errors="replace")
    raise DecodeError(f"{value_name} is neither a str nor a bin nor an unsigned int")


def read_text(raw: bytes, value_name: str) -> str:
    """Returns text written as str or bin."""
    if not is_bin(raw[0]):
        return _decode_or_raise(_decode_str, raw, value_name)
    try:
        return _decode_or_raise(_decode_bytes, raw, value_name).decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"{value_name}: {error}") from error


def read_bytes(raw: bytes, value_name: str) -> bytes:
    """Returns bytes written as bin, as an array of small ints, or as a str that is not UTF-8."""
    if is_str(raw[0]):
        content = raw[read_head_end_and_length(raw, 0)[0] :]
        try:
            content.decode()
        except UnicodeDecodeError:  # written by something that has only one type for text and bytes
            return content
    return bytes(_decode_or_raise(_decode_bytes_or_ints, raw, value_name))


def read_u32(raw: bytes, value_name: str) -> int:
    return _decode_or_raise(_decode_u32, raw, value_name)


def read_u64(raw: bytes, value_name: str) -> int:
    return _decode_or_raise(_decode_u64, raw, value_name)


def read_float(raw: bytes, value_name: str) -> float:
    return _decode_or_raise(_decode_float, raw, value_name)


def read_optional(read: Callable[[bytes, str], T], raw: bytes, value_name: str) -> T | None:
    """Reads by `read`; None for nil."""
    return None if raw == NIL else read(raw, value_name)


def find_end_of_value(data: bytes, start: int) -> int:
    """Returns where the value that starts at `start` ends."""
    return find_end_of_skipped_value(data, start, max_depth=_MAX_SKIPPED_DEPTH)


def _decode_or_raise(decode: Callable[[bytes], T], raw: bytes, value_name: str) -> T:
    try:
        return decode(raw)
    except DECODER_REFUSALS as error:
        raise DecodeError(f"{value_name}: {error}") from error
