"""Delivery: a job as the engine holds it, from the moment its entry is read until it is settled.

The handler gets a Job of its own, made from this when it is called. The engine never looks at that Job again, so
nothing that a handler does to it changes what is settled, retried, buried, counted or told.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..retry import RetryOverride


class Delivery(msgspec.Struct, eq=False, gc=False):
    """One delivery of a stream entry: the job that it holds, and what has become of it here."""

    # hot: a Struct takes 0.1 us to build, a frozen dataclass with slots 0.8. The garbage collector does not go through
    # thousands of them: nothing that a handler can get hold of is left in it once the handler is called.

    id: str
    name: str
    data: Any  # for the handler alone: None from the moment it is called
    attempt: int = 0  # earlier runs that failed: 0 on the first
    created_at_ms: int = 0
    retry: RetryOverride | None = None
    payload: bytes = b""  # the data as it came, for what is rescheduled or buried
    entry_id: bytes = b""
    earlier_deliveries: int = 0  # how often the entry had been delivered before
    extras: bytes = b""
    may_be_unique: bool = False  # it may hold the uniqueness key of its id, to be released when the job ends
    started_at: float = 0.0  # monotonic, as is the next
    ended_at: float = 0.0
    is_told: bool = False  # whether an event says that it is active
    result: bytes | None = None  # what the handler returned, encoded; None if it is not stored
    why_not_stored: str = ""  # if it was to be stored
    is_decoded: bool = True  # if not: `data` holds the entry's fields, `payload` the envelope, and all else is unknown

    @property
    def number(self) -> int:
        """Which delivery of the entry this is, as the server counts them: it tells a run from a later one."""
        return self.earlier_deliveries + 1
