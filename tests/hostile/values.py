"""Bytes that no honest process writes: broken envelopes, numbers without end, text that forges lines, wrong shapes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import msgpack  # type: ignore[import-untyped]

from tests.unit.fuzz_envelope import ENVELOPES, MEMBERS, damage

NUMBERS = (
    *(b"0", b"-1", b"007", b"1.5", b"nan", b"inf", b"-inf", b"1e400", b"0x10", b" 1", b"1_000", b"+1", b""),
    *(b"9" * 5000, b"-" + b"9" * 5000, b"18446744073709551616", b"9223372036854775807", b"4294967296"),
    *("\u0661\u0662".encode(), "\u00b2".encode(), b"1e5", b"true"),
)
TEXTS = (
    *(b"", b"\x00", b"\xff\xfe", b"x" * 300, b"y" * 100_000, "\u202eoff\u2069".encode(), b"\xed\xa0\x80"),
    *(b"forged\r\n2026-01-01 CRITICAL all is lost", b"\x1b[31mred\x1b[0m", b'"} 1\nup 0', b"os.system", b"*", b"{x}:y"),
)
SCORES = (
    "inf",
    "-inf",
    "0",
    "-1",
    "-0",
    "1.5",
    "1e308",
    "-1e308",
    "4.9e-324",
    "1e15",
    "253402300799999",
    "9007199254740993",
)
FIELDS = (
    *(b"d", b"n", b"e", b"id", b"ts", b"attempt", b"attempts", b"reason", b"detail", b"error", b"error_type"),
    *(b"source_id", b"traceback", b"worker", b"line", b"spec", b"fired", b"retry", b"stored", b"duration_us", b"x"),
)
PATTERNS: tuple[Any, ...] = (
    *({"Every": [ms]} for ms in (0, 1000, 3_600_000, 2**63, -1, "x")),
    *(
        {"Cron": [text, zone]}
        for text in ("* * * * *", "0 0 30 2 *", "0 0 0 1 1 * 9999", "x")
        for zone in (None, "UTC")
    ),
    *(
        {"Cron": ["0 3 * * *", zone]}
        for zone in ("Europe/Berlin", "Pacific/Apia", "../../etc/passwd", "\x00", "+99:99")
    ),
    *(None, [], "Every", {"Cron": None}, {1: 2}, {"Every": [], "Cron": []}),
)
BOUNDS: tuple[Any, ...] = (None, None, None, 0, 1, 253_402_300_799_000, 2**53 + 1, 2**63, 2**64 - 1, -1, 1.5, "1")
POLICIES: tuple[Any, ...] = (None, "Skip", "FireOnce", {"FireAll": [2**64 - 1]}, {"FireAll": []}, 7, [])

Maker = Callable[[random.Random], bytes]


def envelope(rng: random.Random) -> bytes:
    raw = rng.choice(ENVELOPES)
    return raw if rng.random() < 0.2 else damage(rng, raw, rng.choice(ENVELOPES))


def member(rng: random.Random) -> bytes:
    raw = rng.choice(MEMBERS)
    return raw if rng.random() < 0.2 else damage(rng, raw, rng.choice(MEMBERS))


def spec(rng: random.Random) -> bytes:
    """A repeatable as it is stored, with any pattern and any bounds, often with damage."""
    payload = msgpack.packb(rng.choice((b"\x80", b"", b"\xc1", b"x" * 5000)))
    bounds = rng.choices(BOUNDS, k=3)
    raw = bytes(msgpack.packb(["k", "hostile", rng.choice(PATTERNS), payload, *bounds, 0, rng.choice(POLICIES)]))
    return raw if rng.random() < 0.7 else damage(rng, raw, rng.choice(ENVELOPES))


def worker_record(rng: random.Random) -> bytes:
    about = {
        "consumer_id": rng.choice(("w", "x" * 70_000, "a\nb", 7)),
        "host": rng.choice(("h", "\x1b[2J", None)),
        "pid": rng.choice((1, -1, 2**63, "1")),
        "started_at_ms": rng.choice((0, 2**64 - 1, 1.5)),
        "concurrency": 1,
        "busy": rng.choice((0, -(2**62))),
        "job_ids": rng.choice(([], ["j"] * 1000, "j", [b"\xff"])),
    }
    raw = bytes(msgpack.packb(about))
    return raw if rng.random() < 0.6 else damage(rng, raw, raw)


def number(rng: random.Random) -> bytes:
    return rng.choice(NUMBERS)


def text(rng: random.Random) -> bytes:
    return rng.choice(TEXTS)


MAKERS: tuple[Maker, ...] = (
    envelope,
    member,
    spec,
    worker_record,
    number,
    text,
    lambda rng: rng.randbytes(rng.randrange(64)),
)


def anything(rng: random.Random) -> bytes:
    return rng.choice(MAKERS)(rng)


def field_pairs(rng: random.Random) -> list[bytes]:
    """The fields of an entry: known names, any values, sometimes twice the same, sometimes a shape of its own."""
    names = rng.choices(FIELDS, k=rng.choice((1, 1, 2, 3, 6)))
    if rng.random() < 0.5:
        names = [b"d", *names]
    return [word for name in names for word in (name, (envelope if name == b"d" else anything)(rng))]


def score(rng: random.Random) -> str:
    now_ms = int(time.time() * 1000)
    return rng.choice((*SCORES, str(now_ms), str(now_ms + 50), str(now_ms + 10**7)))


def entry_id(rng: random.Random) -> str:
    """An entry id, nearly always one that leaves room for ids behind it."""
    return "*" if rng.random() < 0.8 else f"{int(time.time() * 1000) + rng.randrange(1000)}-{rng.randrange(2**32)}"


LAST_ID = f"{2**64 - 1}-{2**64 - 1}"
FAR_ID = "253402300800000-0"
