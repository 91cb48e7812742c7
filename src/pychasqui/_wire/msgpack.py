"""MessagePack values: what a user may put into a job, strictly encoded; bytes from anywhere, decoded within bounds.

Allowed are str, bytes, int, float, bool, None, list, tuple and dict, and what derives from them: exactly what
msgpack-python accepts without options, and the same bytes. Encoding never writes what decoding would refuse.
Decoding returns a value or raises DecodeError, within a bounded depth and memory (msgpack_scan.py).
"""

from __future__ import annotations

from gc import get_referents
from typing import Any, NoReturn

import msgspec

from ..errors import DecodeError, PayloadTooLarge, UnsupportedData
from .msgpack_scan import MAX_DEPTH, MAX_GROWTH, Scan, compute_allowed_memory_bytes, scan_to_end_of_value

encode = msgspec.msgpack.Encoder().encode

_SCALARS = frozenset({str, int, float, bool, type(None), bytes, bytearray})
_CONTAINERS = frozenset({dict, list, tuple})
_PLAIN = _SCALARS | _CONTAINERS


def encode_data(data: Any) -> bytes:
    """Returns the MessagePack of `data`, byte for byte what msgpack-python writes."""
    try:
        encoded = encode(data)
    except Exception:  # noqa: BLE001  msgspec runs code of foreign objects, which may raise anything
        return _encode_unusual(data)
    # msgspec also writes datetimes, sets, dataclasses and more, as strings, arrays and maps. The bytes do not show
    # it, so every type is checked.
    # hot: 0.3 us for a dict of five scalars; a walk in Python takes 0.4, marshal as the judge 0.5.
    if type(data) in _CONTAINERS:
        for value in get_referents(data):
            if type(value) not in _SCALARS:
                return _check_decodable(encoded) if _has_plain_content(data) else _encode_unusual(data)
        return _check_decodable(encoded) if len(encoded) >= _SCAN_BYTES else encoded
    return encoded if type(data) in _SCALARS else _encode_unusual(data)


def encode_all_if_plain(items: list[Any]) -> list[bytes] | None:
    """Does what encode_data() does for each, in one go; None if one of them needs a closer look."""
    # hot: all types of all items in one set, 0.2 us an item with the encoding; one by one it is 0.35
    if not set(map(type, items)) <= _PLAIN:
        return None
    # Before _have_all_plain_content(): what is encoded holds no circle, and no more values than it has bytes.
    try:
        encoded = list(map(encode, items))
    except Exception:  # noqa: BLE001  the closer look says what is wrong
        return None
    return encoded if max(map(len, encoded), default=0) < _SCAN_BYTES and _have_all_plain_content(items) else None


def _has_plain_content(data: Any) -> bool:
    return _have_all_plain_content([data])


def _have_all_plain_content(values_of_layer: list[Any]) -> bool:
    """Returns whether these hold, down to MAX_DEPTH, only exact types that msgspec writes as msgpack-python does.

    Goes down layer by layer: get_referents returns what all containers of a layer hold, in one call. Of a dict these
    are the values and, unless all of them are exact strs, the keys. It looks at a value once for each place where it
    stands, so encode() must have ended before: in a circle the places would double with each layer.
    """
    for _ in range(MAX_DEPTH):
        values = get_referents(*values_of_layer)
        kinds = set(map(type, values))
        if kinds <= _SCALARS:
            return True
        if not kinds <= _PLAIN:
            return False
        values_of_layer = [value for value in values if type(value) in _CONTAINERS]
    return False


def _check_decodable(encoded: bytes) -> bytes:
    if len(encoded) >= _SCAN_BYTES:
        try:
            scan_to_end_of_value(
                encoded, 0, max_depth=MAX_DEPTH, max_memory_bytes=compute_allowed_memory_bytes(encoded)
            )
        except DecodeError as refusal:
            raise PayloadTooLarge(f"no worker would decode the data: {refusal}") from None
    return encoded


def _encode_unusual(data: Any) -> bytes:
    """What derives from an allowed type is written as that type; anything else is refused by its path."""
    try:
        return _check_decodable(encode(_to_plain(data, None, ())))
    except RecursionError:
        raise UnsupportedData("data is nested too deep for what is left of the stack") from None


# The path to a value: that of its container, and its key or index in there. None is the data itself.
_Path = tuple[Any, object] | None


def _to_plain(value: Any, path: _Path, containers: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _to_plain_str(value, path)
    if isinstance(value, int):
        return _to_plain_int(value, path)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return memoryview(value).tobytes()
    # msgpack-python's own ExtType is a tuple, but would not be written as one.
    if not isinstance(value, (dict, list, tuple)) or type(value).__module__.partition(".")[0] == "msgpack":
        _raise_unsupported_data(path, f"is a {type(value).__qualname__}, which MessagePack cannot hold")
    if id(value) in containers:
        _raise_unsupported_data(path, "contains itself")
    if len(containers) == MAX_DEPTH:
        _raise_unsupported_data(path, f"is nested deeper than {MAX_DEPTH} levels")
    containers = (*containers, id(value))
    # Loops, because a comprehension would take a second frame for each level.
    if isinstance(value, dict):
        entries = {}
        for key, item in value.items():
            entries[_to_plain_key(key, path, containers)] = _to_plain(item, (path, key), containers)
        return entries
    items = []
    for index, item in enumerate(value):
        items.append(_to_plain(item, (path, index), containers))
    return items


def _to_plain_str(value: str, path: _Path) -> str:
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        _raise_unsupported_data(path, "is a str with a lone surrogate, which UTF-8 cannot hold")
    return text


def _to_plain_int(value: int, path: _Path) -> int:
    number = int.__int__(value)
    if not -(2**63) <= number < 2**64:
        _raise_unsupported_data(path, "is an int beyond the 64 bits of MessagePack")
    return number


def _to_plain_key(key: Any, path: _Path, containers: tuple[int, ...]) -> Any:
    try:
        plain = _to_plain(key, None, containers)
    except UnsupportedData as refusal:
        _raise_unsupported_data(path, f"has the key {key!a:.80}, which{str(refusal).removeprefix('data')}")
    return _lists_to_tuples(plain)


def _lists_to_tuples(key: Any) -> Any:
    return tuple(map(_lists_to_tuples, key)) if isinstance(key, list) else key


def _raise_unsupported_data(path: _Path, problem: str) -> NoReturn:
    steps: list[str] = []
    while path is not None:
        path, key = path
        steps.insert(0, f"[{key!a:.80}]")
    if len(steps) > 20:
        steps[10:-5] = ["[...]"]
    raise UnsupportedData(f"data{''.join(steps)} {problem}")


def _refuse_extension(code: int, _: memoryview) -> NoReturn:
    raise DecodeError(f"the data holds extension type {code}")


# For payloads that are known to be small; the caller handles DECODER_REFUSALS.
decode_unchecked = msgspec.msgpack.Decoder(ext_hook=_refuse_extension).decode
# All that a decoder raises for bad bytes. MemoryError is not among them: msgspec allocates by what it reads and not by
# the lengths in the bytes, so running out of memory is no reason to bury a job.
DECODER_REFUSALS = (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError)


def decode_data(payload: bytes) -> Any:
    """Returns the value in `payload`. Of the extension types only timestamps are allowed, and become datetimes."""
    scan = make_scan_if_needed(payload)
    while scan is not None and not scan.advance_and_see_if_ended(1_000_000):
        pass
    return decode_scanned(payload)


def make_scan_if_needed(payload: bytes) -> Scan | None:
    """Returns the scan that must end before a payload of this size is decoded; None if it needs none."""
    if len(payload) < _SCAN_BYTES:
        return None
    return Scan(payload, 0, max_depth=MAX_DEPTH, max_memory_bytes=compute_allowed_memory_bytes(payload))


def decode_scanned(payload: bytes) -> Any:
    """Does what decode_data() does for a payload whose scan, if it needs one, has ended."""
    try:
        value = decode_unchecked(payload)
    except DECODER_REFUSALS as error:
        raise DecodeError(f"the data is not MessagePack: {error}") from error
    if MAX_DEPTH < len(payload) < _SCAN_BYTES and _may_be_too_deep(payload):
        _check_depth(value)
    return value


def _may_be_too_deep(payload: bytes) -> bool:
    # hot: counting what could be the head of a container takes half the time of looking at the value, up to some size.
    return len(payload) > 4096 or len(payload) - len(payload.translate(None, _CONTAINER_HEADS)) > MAX_DEPTH


def _check_depth(value: Any) -> None:
    # msgspec stops by itself where CPython's recursion ends, but where that is depends on the caller's own depth.
    layer = [value]
    for _ in range(MAX_DEPTH + 1):
        layer = get_referents(*layer)
        if not layer:
            return
    raise DecodeError(f"the MessagePack is nested deeper than {MAX_DEPTH} levels")


_CONTAINER_HEADS = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))
# The densest value found, a chain of one-entry dicts, takes 132 bytes of memory for each byte: no smaller payload can
# exceed its allowance.
_SCAN_BYTES = MAX_GROWTH * 2**20 // 160
