"""Reads numbers, texts and fields that anybody may have written into Redis, and never raises.

Every length is checked before any work is done: int() of many digits takes time that grows with their square, and
raises beyond 4,300 of them. A value that cannot be read becomes None or the default.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

MAX_DIGITS = 20  # the digits of 2**64 - 1
MAX_TEXT_BYTES = 16_384
MAX_PAIRS = 64
LATEST_MS = 253_402_300_799_999  # the end of the year 9999, where dates end


def read_int(raw: Any, minimum: int = 0, maximum: int = 2**63 - 1) -> int | None:
    """Returns a whole number between two bounds as the server or a script writes it; None for everything else."""
    if isinstance(raw, bool):
        return None
    if isinstance(raw, (bytes, str)):
        digits = raw.removeprefix(b"-") if isinstance(raw, bytes) else raw.removeprefix("-")
        if not (0 < len(digits) <= MAX_DIGITS and digits.isdigit() and digits.isascii()):
            return None
        raw = int(raw)
    return raw if isinstance(raw, int) and minimum <= raw <= maximum else None


def read_time_ms_or_zero(raw: Any) -> int:
    """Returns a time in ms since 1970, as a score holds it; one before that or after LATEST_MS becomes the bound."""
    try:
        score = float(raw)
    except (TypeError, ValueError, OverflowError):
        return 0
    return int(min(max(score, 0.0), LATEST_MS)) if score == score else 0


def read_cut_text(raw: Any, max_bytes: int = MAX_TEXT_BYTES) -> str | None:
    """Returns text cut to a bound, a str to as many characters; what is no UTF-8 is replaced. None if there is none."""
    if isinstance(raw, str):
        return raw[:max_bytes]
    return raw[:max_bytes].decode("utf-8", "replace") if isinstance(raw, bytes) else None


def read_first_pairs(words: Any) -> dict[bytes, bytes]:
    """Returns the fields of an entry: the first MAX_PAIRS, the last one of each name, without what has no partner."""
    if isinstance(words, dict):
        pairs: Iterable[tuple[Any, Any]] = islice(words.items(), MAX_PAIRS)
    elif isinstance(words, (list, tuple)):
        words = words[: 2 * MAX_PAIRS]
        pairs = zip(words[::2], words[1::2], strict=False)
    else:
        return {}
    return {name: value for name, value in pairs if isinstance(name, bytes) and isinstance(value, bytes)}


def read_entry_id(raw: Any) -> tuple[int, int]:
    """Returns the two halves of a stream's id, for comparing; (0, 0) for what is none."""
    ms, _, sequence = (read_cut_text(raw, 64) or "").partition("-")
    return read_int(ms, 0, 2**64 - 1) or 0, read_int(sequence, 0, 2**64 - 1) or 0
