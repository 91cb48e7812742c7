"""Job: what a handler receives and what add() returns."""

from __future__ import annotations

from typing import Any

import msgspec

from .codec import read_extra
from .retry import RetryOverride

SCHEDULED_AT = "s"  # the extra that says for when a job was fired


class Job(msgspec.Struct, eq=False, gc=False):
    """One job: what was added, and which run of it this is."""

    # hot: a Struct takes 0.1 us to build, a frozen dataclass with slots 0.8. The garbage collector does not go through
    # thousands of them: what they hold comes out of MessagePack and cannot refer back to them.

    id: str
    name: str
    data: Any
    attempt: int = 0  # earlier runs that failed: 0 on the first
    created_at_ms: int = 0  # by the adding machine's clock
    _retry: RetryOverride | None = None
    _payload: bytes = b""  # the data as it came, for what is rescheduled or buried
    _entry_id: bytes = b""
    _deliveries: int = 0  # how often the entry had been delivered before
    _extras: bytes = b""
    _is_marked: bool = False  # whether it may be the only one of its id, so that the next must be let in at its end
    is_new: bool = True  # as add() returns it: False if a job of this id was there already
    has_replaced: bool = False  # and if that one was waiting and has this job's data now

    @property
    def _delivery(self) -> int:
        """Which delivery of the entry this is, as the server counts them: it tells a run from a later one."""
        return self._deliveries + 1

    @property
    def scheduled_at_ms(self) -> int | None:
        """The time for which a repeatable fired this job; None for a job that was added."""
        scheduled_at_ms = read_extra(self._extras, SCHEDULED_AT) if self._extras else None
        return scheduled_at_ms if isinstance(scheduled_at_ms, int) else None

    @property
    def attempts_made(self) -> int:
        """The official package's other name for `attempt`."""
        return self.attempt

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, name={self.name!r}, data={self.data!r}, attempt={self.attempt})"
