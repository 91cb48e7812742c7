"""How single values are written: for a person on a terminal, as plain text in a pipe, and in JSON.

Text of others, such as the names and data of jobs, is escaped here, whatever it is shown in.
"""

from __future__ import annotations

import base64
import json
import math
import time
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from ..errors import printable

NONE = "-"
MAX_CELL_CHARS = 300  # of a value on a terminal; a table cuts it further to fit
UNCUT = 2**31  # more characters than any value has
_STEPS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


class Kind(Enum):
    """What a value is, and so how it is written."""

    TEXT = "text"
    COUNT = "count"
    RATE = "rate"  # a second
    TIME = "time"  # ms since 1970
    SPAN = "span"  # ms
    DATA = "data"  # what users put into jobs and get out of them


def format_value_for_terminal(value: Any, kind: Kind, now_ms: int) -> str:
    """Writes a value for a person: counts with commas, times relative to now, one line, cut."""
    if value is None:
        return NONE
    if kind is Kind.COUNT and isinstance(value, int):
        return f"{value:,}"
    if kind is Kind.RATE:
        return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
    if kind is Kind.TIME:
        return format_relative_time(value, now_ms)
    if kind is Kind.SPAN:
        return format_span(value)
    return printable(_to_text(value, kind), MAX_CELL_CHARS)


def format_value_for_pipe(value: Any, kind: Kind) -> str:
    """Writes a value for a program: nothing is cut, times are ISO-8601, spans are in seconds to the millisecond, rates
    have one decimal place."""
    if value is None:
        return NONE
    if kind is Kind.TIME:
        return format_iso_time(value) or NONE
    if kind is Kind.SPAN:
        return f"{value / 1000:.3f}s"
    if kind is Kind.RATE:
        return f"{value:.1f}"
    return printable(_to_text(value, kind), UNCUT)


def _to_text(value: Any, kind: Kind) -> str:
    return encode_compact_json(value) if kind is Kind.DATA or isinstance(value, bool) else str(value)


def format_iso_time(ms: int | None) -> str | None:
    """Writes a time as ISO-8601 with milliseconds, in UTC. None if there is none, or no calendar has it."""
    if ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def make_iso_and_ms_fields(**at_ms: int | None) -> dict[str, Any]:
    """Returns each time twice, for a JSON record: `due_at` as ISO-8601, `due_at_ms` in ms since 1970."""
    record: dict[str, Any] = {}
    for name, ms in at_ms.items():
        record[name] = format_iso_time(ms)
        record[f"{name}_ms"] = ms
    return record


def format_relative_time(ms: int, now_ms: int) -> str:
    distance = ms - now_ms
    if abs(distance) < 1000:
        return "now"
    return f"in {format_span(distance)}" if distance > 0 else f"{format_span(-distance)} ago"


def format_span(ms: int) -> str:
    """Writes a span of time by its two largest units: 250 ms, 12 s, 3 m 20 s, 4 h, 3 d 2 h."""
    if ms < 1000:
        return f"{ms} ms"
    seconds, parts = ms // 1000, list[str]()
    for unit, length in _STEPS:
        amount, seconds = divmod(seconds, length)
        if amount:
            parts.append(f"{amount} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def format_count(count: int, noun: str, *, has_commas: bool = True) -> str:
    """Writes how many there are: 1 job, 2,500 jobs, 3 entries. Lines that scripts may read have no commas."""
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:{',' if has_commas else ''}} {noun}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def encode_compact_json(value: Any) -> str:
    """Writes data as JSON in one line. Characters beyond ASCII stay: the caller escapes what cannot be printed."""
    return json.dumps(to_jsonable(value), ensure_ascii=False, separators=(",", ":"))


def to_jsonable(value: Any) -> Any:
    """Returns the value with what JSON does not have replaced: bytes by base64, times by ISO-8601, nan by null."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): to_jsonable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_jsonable(one) for one in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    return repr(value)
