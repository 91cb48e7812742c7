"""An event as it is written to the event stream."""

from __future__ import annotations

import time
from typing import NamedTuple

MAX_REASON_CHARS = 500


class Event(NamedTuple):
    """Its kind, its job, and what is particular to its kind."""

    kind: str
    job_id: str = ""
    job_name: str = ""
    extras: tuple[str | int, ...] = ()
    at_ms: int = 0  # 0: when it is written

    def words(self) -> list[str | int]:
        """Fields and values in the official order."""
        name = ("n", self.job_name) if self.job_name else ()
        return ["e", self.kind, "id", self.job_id, "ts", self.at_ms or now_ms(), *name, *self.extras]


def joined(*events: Event) -> tuple[str | int, ...]:
    """Events as scripts take them: each with its number of words before it."""
    words: list[str | int] = []
    for event in events:
        own = event.words()
        words += (len(own), *own)
    return tuple(words)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def bounded(text: str) -> str:
    """An error's text as an event carries it."""
    return text[:MAX_REASON_CHARS].encode("utf-8", "backslashreplace").decode()
