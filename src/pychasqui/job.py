"""Job: what a handler receives and what add() returns."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec

from ._core.user_objects import plain
from ._wire.envelope import read_extra
from .errors import InvalidArgument

MAX_PROGRESS = 1e300  # past it, arithmetic ends somewhere
SCHEDULED_AT = "s"  # the extra that says for when a job was fired


class Job(msgspec.Struct, eq=False):
    """One job: what was added, and which run of it this is.

    It belongs to whoever holds it. The worker keeps a record of its own (`_core/delivery.py`) and never looks at it
    again, so a handler may change it as it likes.
    """

    # hot: a Struct takes 0.1 us to build, a frozen dataclass with slots 0.8

    id: str
    name: str
    data: Any
    attempt: int = 0  # earlier runs that failed: 0 on the first
    created_at_ms: int = 0  # by the adding machine's clock
    _reporter: Any = None  # where its handler says how far it is,
    _own_id: str = ""
    _own_name: str = ""  # and of which job, whatever becomes of the fields above
    _extras: bytes = b""
    _queue: Any = None  # the Queue that added it, to ask for its result
    is_new: bool = True  # as add() returns it: False if a job of this id was there already
    has_replaced: bool = False  # and if that one was waiting and has this job's data now

    async def wait_for_result(self, *, timeout: float = 30.0, poll_interval: float | None = None) -> Any:  # noqa: ASYNC109
        """What the handler returns; see Queue.wait_for_result(). Nothing is polled: poll_interval has no effect."""
        if self._queue is None:
            raise RuntimeError("this job does not come from add(): ask Queue.wait_for_result() with its id")
        return await self._queue.wait_for_result(self.id, timeout=timeout)

    def progress(self, done: float, total: float = 100, note: str = "") -> Awaitable[None]:
        """Say how far the handler is; whoever waits or watches can see it. May be awaited, waits for nothing."""
        for field, value in (("done", done), ("total", total)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < MAX_PROGRESS:
                raise InvalidArgument(f"{field} is {value!r}, must be a number from 0 to {MAX_PROGRESS:g}"[:300])
        if not total:
            raise InvalidArgument("total is 0, must be more than that")
        done, total = _plain_number(done), _plain_number(total)
        percent = 100 if done >= total else int(100 * done / total)
        extras = ("done", f"{done:g}", "total", f"{total:g}") + (("note", plain(str(note))) if note else ())
        said: Awaitable[None] = self._at_desk().progress(self._own_id, self._own_name, percent, extras)
        return said

    def log(self, line: str) -> Awaitable[None]:
        """Add a line to the job's log, which Queue.get_job_logs() shows. May be awaited, waits for nothing."""
        said: Awaitable[None] = self._at_desk().log(self._own_id, plain(str(line)))
        return said

    def _at_desk(self) -> Any:
        if self._reporter is None or type(self._own_id) is not str or type(self._own_name) is not str:
            raise RuntimeError("only a handler can say how far its job is, with the job that it was given")
        return self._reporter

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


class AddedJob(Job, gc=False):
    """The Job that add() returns. What it holds has just been encoded, so nothing in it refers back to it."""

    # hot: 15 to 30 % of a bulk's time; the garbage collector does not go through thousands of them


def _plain_number(number: float) -> float:
    """The same number, without a class of its own."""
    return int.__pos__(number) if isinstance(number, int) else float.__pos__(number)
