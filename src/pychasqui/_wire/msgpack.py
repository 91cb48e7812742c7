"""MessagePack values: what a user may put into a job, strictly encoded; bytes from anywhere, decoded within bounds.

Allowed are str, bytes, int, float, bool, None, list, tuple and dict, and what derives from them: exactly what
msgpack-python accepts without options, and the same bytes. Encoding never writes what decoding would refuse.
Decoding returns a value or raises DecodeError, within a bounded depth and memory. The codec is its only user.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from gc import get_referents
from typing import Any, NoReturn

import msgspec

from ..errors import DecodeError, PayloadTooLarge, UnsupportedData

# Half of CPython's recursion limit: msgspec takes one level of it for each container inside a container.
MAX_DEPTH = 500
# Decoded objects may take this many times the bytes they came in; anything smaller than 1 MiB counts as 1 MiB.
MAX_GROWTH = 15

encode = msgspec.msgpack.Encoder().encode

_SCALARS = frozenset({str, int, float, bool, type(None), bytes, bytearray})
_CONTAINERS = frozenset({dict, list, tuple})
_PLAIN = _SCALARS | _CONTAINERS


def encode_data(data: Any) -> bytes:
    """MessagePack of `data`, byte for byte what msgpack-python writes."""
    try:
        encoded = encode(data)
    except Exception:  # noqa: BLE001  msgspec runs code of foreign objects, which may raise anything
        return _encode_unusual(data)
    # msgspec also writes datetimes, sets, dataclasses and more, as strings, arrays and maps. Nothing in the bytes
    # tells, so every type is looked at.
    # hot: 0.3 us for a dict of five scalars; a walk in Python takes 0.4, marshal as the judge 0.5.
    if type(data) in _CONTAINERS:
        for value in get_referents(data):
            if type(value) not in _SCALARS:
                return _checked(encoded) if _is_plain(data) else _encode_unusual(data)
        return _checked(encoded) if len(encoded) >= _SCAN_BYTES else encoded
    return encoded if type(data) in _SCALARS else _encode_unusual(data)


def encode_plain(items: list[Any]) -> list[bytes] | None:
    """encode_data of each, in one go; None if one of them needs a closer look."""
    # hot: all types of all items in one set, 0.2 us an item with the encoding; one by one it is 0.35
    if not set(map(type, items)) <= _PLAIN or not _are_plain(items):
        return None
    try:
        encoded = list(map(encode, items))
    except Exception:  # noqa: BLE001  the closer look says what is wrong
        return None
    return encoded if max(map(len, encoded), default=0) < _SCAN_BYTES else None


def _is_plain(data: Any) -> bool:
    return _are_plain([data])


def _are_plain(layer: list[Any]) -> bool:
    """Is all that these hold, down to MAX_DEPTH, of exact types that msgspec writes as msgpack-python does?

    Goes down layer by layer: get_referents returns what all containers of a layer hold, in one call. Of a dict these
    are the values and, unless all of them are exact strs, the keys.
    """
    for _ in range(MAX_DEPTH):
        values = get_referents(*layer)
        kinds = set(map(type, values))
        if kinds <= _SCALARS:
            return True
        if not kinds <= _PLAIN:
            return False
        layer = [value for value in values if type(value) in _CONTAINERS]
    return False


def _checked(encoded: bytes) -> bytes:
    if len(encoded) >= _SCAN_BYTES:
        try:
            end_of_value(encoded, 0, max_depth=MAX_DEPTH, max_memory=_allowance(encoded))
        except DecodeError as refusal:
            raise PayloadTooLarge(f"no worker would decode the data: {refusal}") from None
    return encoded


def _encode_unusual(data: Any) -> bytes:
    """What derives from an allowed type is written as that type; anything else is refused by its path."""
    try:
        return _checked(encode(_plain(data, None, ())))
    except RecursionError:
        raise UnsupportedData("data is nested too deep for what is left of the stack") from None


# Where a value sits: the place of its container, and its key or index in there. None is the data itself.
_Path = tuple[Any, object] | None


def _plain(value: Any, path: _Path, holders: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_str(value, path)
    if isinstance(value, int):
        return _plain_int(value, path)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return memoryview(value).tobytes()
    # msgpack-python's own ExtType is a tuple, but would not be written as one.
    if not isinstance(value, (dict, list, tuple)) or type(value).__module__.partition(".")[0] == "msgpack":
        _refuse(path, f"is a {type(value).__qualname__}, which MessagePack cannot hold")
    if id(value) in holders:
        _refuse(path, "contains itself")
    if len(holders) == MAX_DEPTH:
        _refuse(path, f"is nested deeper than {MAX_DEPTH} levels")
    holders = (*holders, id(value))
    # Loops, because a comprehension would take a second frame for each level.
    if isinstance(value, dict):
        entries = {}
        for key, item in value.items():
            entries[_plain_key(key, path, holders)] = _plain(item, (path, key), holders)
        return entries
    items = []
    for index, item in enumerate(value):
        items.append(_plain(item, (path, index), holders))
    return items


def _plain_str(value: str, path: _Path) -> str:
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(path, "is a str with a lone surrogate, which UTF-8 cannot hold")
    return text


def _plain_int(value: int, path: _Path) -> int:
    number = int.__int__(value)
    if not -(2**63) <= number < 2**64:
        _refuse(path, "is an int beyond the 64 bits of MessagePack")
    return number


def _plain_key(key: Any, path: _Path, holders: tuple[int, ...]) -> Any:
    try:
        plain = _plain(key, None, holders)
    except UnsupportedData as refusal:
        _refuse(path, f"has the key {key!a:.80}, which{str(refusal).removeprefix('data')}")
    return _hashable(plain)


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


def _refuse(path: _Path, trouble: str) -> NoReturn:
    steps: list[str] = []
    while path is not None:
        path, key = path
        steps.insert(0, f"[{key!a:.80}]")
    if len(steps) > 20:
        steps[10:-5] = ["[...]"]
    raise UnsupportedData(f"data{''.join(steps)} {trouble}")


def _refuse_extension(code: int, _: memoryview) -> NoReturn:
    raise DecodeError(f"the data holds extension type {code}")


# For what is known to be small; whoever calls it sees to its refusals.
decode_unchecked = msgspec.msgpack.Decoder(ext_hook=_refuse_extension).decode
# All that a decoder may find wrong with bytes. MemoryError is not in it: msgspec grows by what it reads and not by the
# lengths it is told, so running out is the machine's trouble and no reason to bury a job.
DECODER_REFUSALS = (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError)


def decode_data(payload: bytes) -> Any:
    """The value in `payload`. Of the extension types only timestamps are allowed, and become datetimes."""
    scan = scan_of(payload)
    while scan is not None and not scan.advance(1_000_000):
        pass
    return decode_scanned(payload)


def scan_of(payload: bytes) -> Scan | None:
    """What must come to its end before a payload of this size is decoded; None if nothing must."""
    if len(payload) < _SCAN_BYTES:
        return None
    return Scan(payload, 0, max_depth=MAX_DEPTH, max_memory=_allowance(payload))


def decode_scanned(payload: bytes) -> Any:
    """decode_data() for one whose scan, if it needs one, has come to its end."""
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


# By first byte: the size of scalars and short strs (else 0), and the memory they take besides their place in a list.
# CPython shares the ints up to 256, the empty str and those of one character.
_SIZE = [1] * 128 + [0] * 32 + list(range(1, 33)) + [1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 5, 9, 2, 3, 5, 9]
_SIZE += [2, 3, 5, 9, 3, 4, 6, 10, 18] + [0] * 7 + [1] * 32
_MEMORY = [0] * 162 + list(range(51, 81)) + [0] * 10 + [24, 24, 0, 32, 32, 36, 32, 32, 32, 36]
_MEMORY += [48] * 5 + [0] * 7 + [32] * 27 + [0] * 5
# By first byte, for the other types: the width of the length or count that follows.
_WIDTH = dict.fromkeys((0xC4, 0xC7, 0xD9), 1) | dict.fromkeys((0xC5, 0xC8, 0xDA, 0xDC, 0xDE), 2)
_WIDTH |= dict.fromkeys((0xC6, 0xC9, 0xDB, 0xDD, 0xDF), 4)


# By first byte, for numbers: finds as many as follow each other in the same form.
_RUNS: list[Callable[[bytes, int], re.Match[bytes] | None] | None]
_RUNS = [re.compile(rb"[\x00-\x7f]*+").match] * 128 + [None] * 128
_RUNS[0xCA:0xD4] = [re.compile(rb"(?s:\x%02x.{%d})*+" % (first, _SIZE[first] - 1)).match for first in range(0xCA, 0xD4)]
_WORTH_A_RUN = 32  # values that a container has left; below, going one by one is faster


class Scan:
    """Finds where a value ends without decoding it, without recursion, and a part at a time if that is wanted.

    DecodeError if it is cut short, nested deeper than `max_depth`, or would take more than `max_memory` as objects.
    """

    def __init__(self, data: bytes, start: int, *, max_depth: int, max_memory: int) -> None:
        self.end = start  # of the value, once advance() has returned True
        self._data = data
        self._max_depth = max_depth
        self._memory = max_memory  # what is left of it
        self._left = 1  # values of the innermost container that are still to come
        self._outer: list[int] = []  # the same of the containers around it

    def advance(self, steps: int) -> bool:
        """Go on for that many steps, each a value or a run of them; whether the end was found."""
        data, size, position, left, outer = self._data, len(self._data), self.end, self._left, self._outer
        memory, mixed_until = self._memory, 0
        for _ in range(steps):
            if not left:
                if not outer:
                    break
                left = outer.pop()
                continue
            if position >= size or memory < 0:
                break
            first = data[position]
            if _SIZE[first]:
                if left >= _WORTH_A_RUN and position >= mixed_until and (run := _RUNS[first]) is not None:
                    # hot: an array of numbers in one step, 10 ns a value; one by one it is 200
                    count = min((run(data, position).end() - position) // _SIZE[first], left)  # type: ignore[union-attr]
                    if count < _WORTH_A_RUN:
                        mixed_until = position + 16 * _WORTH_A_RUN
                    if count:
                        left, memory = left - count, memory - count * _MEMORY[first]
                        position += count * _SIZE[first]
                        continue
                left -= 1
                begin, position = position + 1, position + _SIZE[first]
                memory -= _MEMORY[first]
                if 0xA1 < first < 0xC0 and not data[begin:position].isascii():
                    memory -= 23 + 3 * (position - begin)
                continue
            left -= 1
            position, count = read_head(data, position)
            if 0xC0 < first < 0xDC:
                begin, position = position, position + count + (0xC7 <= first <= 0xC9)
                memory -= 49 + count if data[begin:position].isascii() else 72 + 4 * count
                continue
            outer.append(left)
            if first < 0x90 or first > 0xDD:
                left = 2 * count
                memory -= _memory_of_dict(count)
            else:
                left = count
                memory -= 56 + 9 * count + 64 * (count > 16)
            if len(outer) > self._max_depth:
                raise DecodeError(f"the MessagePack is nested deeper than {self._max_depth} levels")
        else:
            self.end, self._left, self._memory = position, left, memory
            return False
        if memory < 0 and left <= size:
            raise DecodeError(f"{size} bytes of MessagePack would take more than {MAX_GROWTH} times that as objects")
        if left or outer or position > size:
            raise DecodeError("the MessagePack is cut short")
        self.end = position
        return True


def end_of_value(data: bytes, start: int, *, max_depth: int, max_memory: int) -> int:
    """Where the value that starts at `start` ends, by a Scan in one go."""
    scan = Scan(data, start, max_depth=max_depth, max_memory=max_memory)
    while not scan.advance(1_000_000):
        pass
    return scan.end


_skip = msgspec.msgpack.Decoder(msgspec.Raw).decode
_FOLLOWED = "trailing characters (byte "
_BROKEN = re.compile("truncated|invalid opcode")


def skip_value(data: bytes, start: int, *, max_depth: int) -> int:
    """Where a value ends that is not to be decoded, however many values it holds."""
    if len(data) - start <= _SKIPPED_BY_HAND:
        return end_of_value(data, start, max_depth=max_depth, max_memory=sys.maxsize)
    try:  # hot: 3 ms a megabyte, by hand 800; msgspec names the byte at which the value ended
        _skip(memoryview(data)[start:])
    except RecursionError:
        raise DecodeError(f"the MessagePack is nested deeper than {max_depth} levels") from None
    except msgspec.MsgspecError as refusal:
        if (end := position_behind(refusal)) is not None:
            return start + end
        if _BROKEN.search(str(refusal)):
            raise DecodeError(f"the data is not MessagePack: {refusal}") from None
        return end_of_value(data, start, max_depth=max_depth, max_memory=sys.maxsize)  # another version's wording
    return len(data)


_SKIPPED_BY_HAND = 64 * 1024


def position_behind(refusal: Exception) -> int | None:
    """Where the value ended that something follows, if that is all that msgspec found wrong."""
    _, is_followed, position = str(refusal).rpartition(_FOLLOWED)
    return int(position[:-1]) if is_followed and position[:-1].isdecimal() else None


def read_head(data: bytes, position: int) -> tuple[int, int]:
    """Of a str, bin, extension, array or map: where its head ends, and its length or count."""
    first = data[position]
    if 0x80 <= first < 0xC0:
        return position + 1, first & (31 if first >= 0xA0 else 15)
    if first not in _WIDTH:
        raise DecodeError(f"the MessagePack has byte 0x{first:02x} where a value should start")
    end = position + 1 + _WIDTH[first]
    return end, int.from_bytes(data[position + 1 : end], "big")


def is_map(first: int) -> bool:
    return 0x80 <= first < 0x90 or 0xDE <= first < 0xE0


def is_array(first: int) -> bool:
    return 0x90 <= first < 0xA0 or 0xDC <= first < 0xDE


def _memory_of_dict(count: int) -> int:
    if count < 6:
        return 240 if count else 64
    # CPython keeps a power of two of slots, up to two thirds of them used. A large table coexists with its predecessor
    # while it grows.
    slots = 1 << ((3 * count + 1) // 2 - 1).bit_length()
    return 96 + slots * (18 if slots < 1024 else 30)


def _allowance(payload: bytes) -> int:
    return MAX_GROWTH * max(len(payload), 2**20)
