"""Makes specs of repeatables in shapes that no known producer writes, and in damaged ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import msgpack  # type: ignore[import-untyped]

FIELDS = ("key", "job_name", "pattern", "payload", "limit", "start_after_ms", "end_before_ms", "fired", "missed_fires")
PATTERNS, POLICIES = ("Cron", "Every"), ("Skip", "FireOnce", "FireAll")
NUMBERS = (0, 1, 5, 2**31, 2**32 - 1, 2**32, 10**12, 2**63, 2**64 - 1)
ODD: tuple[Any, ...] = (
    *(-1, True, None, 1.5, float("nan"), "", b"", "x", b"\xff", [], {}, [1], {"a": 1}, "ü", [[[[1]]]], 7),
    *("Every", b"Cron", "Skip", b"FireOnce", "UTC", msgpack.ExtType(5, b"x"), *NUMBERS),
)


class OddSpecs:
    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def make(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield self._damaged(self._pack(self._spec()))

    def _spec(self) -> Any:
        choice = self._rng.choice
        data = choice((b"\x01", b"\xc0", b"hello", b"\xff\xfe"))
        fields = [
            self._maybe_odd(self._text("k")),
            self._maybe_odd(self._text("mail")),
            self._maybe_odd(self._pattern()),
            msgpack.packb(data) + choice((b"", b"", b"\x00", b"\xc1")),
            self._maybe_odd(choice((None, *NUMBERS))),
            self._maybe_odd(choice((None, *NUMBERS))),
            self._maybe_odd(choice((None, *NUMBERS))),
            choice((0, 0, 3)),  # the official engine refuses what is no number here; nobody reads it, so ours does not
        ]
        if choice((True, False)):
            fields.append(self._maybe_odd(self._policy()))
        elif choice((True, False)):
            fields.pop()
        return self._struct(FIELDS, fields)

    def _pattern(self) -> Any:
        if self._rng.random() < 0.5:
            return self._variant(PATTERNS, 1, self._struct(("interval_ms",), [self._rng.choice((1000, 2**64 - 1))]))
        tz = self._rng.choice((None, self._text("UTC"), self._text("Europe/Berlin")))
        expression = self._text(self._rng.choice(("* * * * *", "*/5 * * * * *")))
        return self._variant(PATTERNS, 0, self._struct(("expression", "tz"), [expression, tz]))

    def _policy(self) -> Any:
        number = self._rng.randrange(3)
        content = self._struct(("max_catchup",), [self._maybe_odd(self._rng.choice(NUMBERS))]) if number == 2 else None
        return self._variant(POLICIES, number, content)

    def _maybe_odd(self, value: Any) -> Any:
        return self._rng.choice(ODD) if self._rng.random() < 0.05 else value

    def _text(self, text: str) -> str | bytes:
        return text.encode() if self._rng.random() < 0.2 else text

    def _struct(self, names: tuple[str, ...], values: list[Any]) -> Any:
        """An array, or a map by name or position; now and then one too short, too long, or with a key twice."""
        rng = self._rng
        if rng.random() < 0.6:
            return values[: len(values) - (rng.random() < 0.05)] + [1] * (rng.random() < 0.05)
        pairs: list[tuple[Any, Any]] = [
            (rng.choice((n, n, n.encode(), i)), v) for i, (n, v) in enumerate(zip(names, values, strict=False))
        ]
        rng.shuffle(pairs)
        if rng.random() < 0.15:
            pairs.pop()
        if rng.random() < 0.15:
            pairs.append((rng.choice(("extra", b"\xff", 77, -1, None, 1.5, names[0], 0, "ä", [1])), rng.choice(ODD)))
        return Pairs(pairs)

    def _variant(self, names: tuple[str, ...], number: int, content: Any) -> Any:
        name = names[number]
        label = self._rng.choice((name, name, name, name.encode(), number, "unknown", 7))
        if content is None:
            return label if self._rng.random() < 0.8 else Pairs([(label, self._rng.choice((None, [], 1)))])
        return Pairs([(label, content)] + [("x", 1)] * (self._rng.random() < 0.04))

    def _pack(self, value: Any) -> bytes:
        """Heads are now and then longer than they need be, and ints signed."""
        rng = self._rng
        if isinstance(value, Pairs):
            content = b"".join(self._pack(word) for pair in value for word in pair)
            return self._head(0x80, 0xDE, len(value)) + content
        if isinstance(value, list):
            return self._head(0x90, 0xDC, len(value)) + b"".join(map(self._pack, value))
        if type(value) is int and 0 <= value < 2**63 and rng.random() < 0.1:
            return struct.pack(">BQ", rng.choice((0xCF, 0xD3)), value)
        if isinstance(value, str) and rng.random() < 0.1:
            return struct.pack(">BI", 0xDB, len(value.encode())) + value.encode()
        packed: bytes = msgpack.packb(value)
        return packed

    def _head(self, short: int, long: int, count: int) -> bytes:
        return bytes([short | count]) if self._rng.random() < 0.9 else struct.pack(">BH", long, count)

    def _damaged(self, packed: bytes) -> bytes:
        rng = self._rng
        match rng.randrange(12):
            case 0:
                return packed + rng.choice((b"\x00", b"abc", b"\xc1", b"\xdd\xff\xff\xff\xff"))
            case 1:
                return packed[: rng.randrange(len(packed) + 1)]
            case _:
                return packed


class Pairs(list[tuple[Any, Any]]):
    """A map; keys may come twice."""
