"""Finds where MessagePack values end without decoding them, and how deep and how large they would become.

A megabyte can decode into 130 MB of Python objects, so what a payload would take is estimated before it is decoded:
docs/explanation/guarantees.md, "A job's data cannot take much more memory than its bytes".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import msgspec

from ..errors import DecodeError

# Half of CPython's recursion limit: msgspec takes one level of it for each container inside a container.
MAX_DEPTH = 500
# Decoded objects may take this many times the bytes they came in; anything smaller than 1 MiB counts as 1 MiB.
MAX_GROWTH = 15


def compute_allowed_memory_bytes(payload: bytes) -> int:
    """Returns how many bytes the objects in this payload may take."""
    return MAX_GROWTH * max(len(payload), 2**20)


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

    DecodeError if it is cut short, nested deeper than `max_depth`, or would take more than `max_memory_bytes` as
    objects.
    """

    def __init__(self, data: bytes, start: int, *, max_depth: int, max_memory_bytes: int) -> None:
        self.end = start  # of the value, once advance_and_see_if_ended() has returned True
        self._data = data
        self._max_depth = max_depth
        self._memory = max_memory_bytes  # what is left of it
        self._left = 1  # values of the innermost container that are still to come
        self._outer: list[int] = []  # the same of the containers around it

    def advance_and_see_if_ended(self, steps: int) -> bool:
        """Goes on for that many steps, each a value or a run of them. Returns whether the end was found."""
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
            position, count = read_head_end_and_length(data, position)
            if 0xC0 < first < 0xDC:
                begin, position = position, position + count + (0xC7 <= first <= 0xC9)
                memory -= 49 + count if data[begin:position].isascii() else 72 + 4 * count
                continue
            outer.append(left)
            if first < 0x90 or first > 0xDD:
                left = 2 * count
                memory -= _estimate_dict_memory_bytes(count)
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


def scan_to_end_of_value(data: bytes, start: int, *, max_depth: int, max_memory_bytes: int) -> int:
    """Returns where the value that starts at `start` ends, by a Scan in one go."""
    scan = Scan(data, start, max_depth=max_depth, max_memory_bytes=max_memory_bytes)
    while not scan.advance_and_see_if_ended(1_000_000):
        pass
    return scan.end


_skip = msgspec.msgpack.Decoder(msgspec.Raw).decode
_FOLLOWED = "trailing characters (byte "
_BROKEN = re.compile("truncated|invalid opcode")


def find_end_of_skipped_value(data: bytes, start: int, *, max_depth: int) -> int:
    """Returns where a value ends that is not to be decoded, however many values it holds.

    In more than _SKIPPED_BY_HAND bytes it may be nested as deep as msgspec follows it, whatever `max_depth` says:
    skipping makes no objects.
    """
    if len(data) - start <= _SKIPPED_BY_HAND:
        return scan_to_end_of_value(data, start, max_depth=max_depth, max_memory_bytes=sys.maxsize)
    try:  # hot: 3 ms a megabyte, by hand 800; msgspec names the byte at which the value ended
        _skip(memoryview(data)[start:])
    except RecursionError:
        raise DecodeError("the MessagePack is nested deeper than the decoder follows it") from None
    except msgspec.MsgspecError as refusal:
        if (end := read_value_end_from_error(refusal)) is not None:
            return start + end
        if _BROKEN.search(str(refusal)):
            raise DecodeError(f"the data is not MessagePack: {refusal}") from None
        return scan_to_end_of_value(
            data, start, max_depth=max_depth, max_memory_bytes=sys.maxsize
        )  # another version's wording
    return len(data)


_SKIPPED_BY_HAND = 64 * 1024


def read_value_end_from_error(refusal: Exception) -> int | None:
    """Returns where the value ended that something follows, if that is all that msgspec found wrong."""
    _, is_followed, position = str(refusal).rpartition(_FOLLOWED)
    return int(position[:-1]) if is_followed and position[:-1].isdecimal() else None


def read_head_end_and_length(data: bytes, position: int) -> tuple[int, int]:
    """Returns where the head of a str, bin, extension, array or map ends, and its length or count."""
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


def is_str(first: int) -> bool:
    return 0xA0 <= first < 0xC0 or 0xD9 <= first < 0xDC


def is_bin(first: int) -> bool:
    return 0xC4 <= first < 0xC7


def _estimate_dict_memory_bytes(count: int) -> int:
    if count < 6:
        return 240 if count else 64
    # CPython keeps a power of two of slots, up to two thirds of them used. A large table coexists with its predecessor
    # while it grows.
    slots = 1 << ((3 * count + 1) // 2 - 1).bit_length()
    return 96 + slots * (18 if slots < 1024 else 30)
