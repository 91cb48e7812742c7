"""Job: what a handler receives and what add() returns."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import msgspec

from ._core.run_timeouts import check_timeout_s
from ._core.user_objects import to_plain_str
from ._wire.envelope import PUT_BACKS, read_extra_or_none, read_put_back_count
from .errors import InvalidArgument

MAX_PROGRESS = 1e300  # 100 times a larger number may overflow
SCHEDULED_AT = "s"  # the extra with the time for which a repeatable fired the job


class Job(msgspec.Struct, eq=False):
    """One job: what was added, and which run of it this is.

    A handler may change its Job as it likes: the worker keeps its own record (`_core/delivery.py`) and never reads the
    Job again.
    """

    # hot: a Struct takes 0.1 us to build, a frozen dataclass with slots 0.8

    id: str
    name: str
    data: Any
    attempt: int = 0  # earlier runs that failed: 0 in the first run
    created_at_ms: int = 0  # by the clock of the machine that added it
    _reporter: Any = None  # sends progress and log lines; set while a handler runs
    _own_id: str = ""  # the id and name that it sends, also if a handler changes the fields above
    _own_name: str = ""
    _extras: bytes = b""
    _entry_id: bytes = b""  # which run of the job the handler was given
    _queue: Any = None  # the Queue that added it, for wait_for_result()
    is_new: bool = True  # set by add(): False if a job of this id existed already
    has_replaced: bool = False  # set by add(): True if that job was waiting and now has this job's data

    async def wait_for_result(self, *, timeout: float = 30.0, poll_interval: float | None = None) -> Any:  # noqa: ASYNC109
        """Waits for what the handler returns; see Queue.wait_for_result().

        `poll_interval` has no effect: events say when a job has ended, and results are looked up every 5 s as well.
        """
        if self._queue is None:
            raise RuntimeError("this job was not returned by add(): call Queue.wait_for_result() with its id")
        return await self._queue.wait_for_result(self.id, timeout=timeout)

    def progress(self, done: float, total: float = 100, note: str = "") -> Awaitable[None]:
        """Reports the handler's progress, as an event and for Queue.get_job_progress().

        Returns at once. Awaited, it waits while Redis is behind with earlier reports.
        """
        for field, value in (("done", done), ("total", total)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < MAX_PROGRESS:
                raise InvalidArgument(f"{field} is {value!r}, must be a number from 0 to {MAX_PROGRESS:g}"[:300])
        if not total:
            raise InvalidArgument("total is 0, must be more than 0")
        done, total = _to_plain_number(done), _to_plain_number(total)
        percent = 100 if done >= total else int(100 * done / total)
        extras = ("done", f"{done:g}", "total", f"{total:g}") + (("note", to_plain_str(str(note))) if note else ())
        sent: Awaitable[None] = self._get_reporter_or_raise().report_or_drop_progress(
            self._own_id, self._own_name, percent, extras
        )
        return sent

    def log(self, line: str) -> Awaitable[None]:
        """Adds a line to the job's log, which Queue.get_job_logs() returns. May be awaited, as progress()."""
        sent: Awaitable[None] = self._get_reporter_or_raise().report_or_drop_log_line(
            self._own_id, to_plain_str(str(line))
        )
        return sent

    @property
    def is_cancelled(self) -> bool:
        """Whether this run is to stop: its time is over, or the job is cancelled. A handler in a thread looks at it."""
        return self._reporter is not None and bool(self._reporter.stops.is_asked_to_stop(self._entry_id))

    def extend(self, span: float | timedelta) -> None:
        """Gives this run more time than its timeout, in seconds or as a timedelta. Without a timeout it does nothing.

        A run that is already to stop stays so.
        """
        self._get_reporter_or_raise().stops.extend_timeout_if_any_is_set(self._entry_id, check_timeout_s("span", span))

    def _get_reporter_or_raise(self) -> Any:
        if self._reporter is None or type(self._own_id) is not str or type(self._own_name) is not str:
            raise RuntimeError(
                "only a handler can report progress and log lines and extend its time, on the job that it was given"
            )
        return self._reporter

    @property
    def scheduled_at_ms(self) -> int | None:
        """The time for which a repeatable fired this job; None if the job was added by a call."""
        scheduled_at_ms = read_extra_or_none(self._extras, SCHEDULED_AT) if self._extras else None
        return scheduled_at_ms if isinstance(scheduled_at_ms, int) else None

    @property
    def snoozes(self) -> int:
        """How often a handler has put this job back by Snooze."""
        return read_put_back_count(self._extras)

    @property
    def attempts_made(self) -> int:
        """The official package's other name for `attempt`."""
        return self.attempt

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and deep copies have all of the job except its worker and its queue, which belong to this process."""
        own = {"_reporter": None, "_queue": None}
        return type(self), tuple(own.get(name, getattr(self, name)) for name in self.__struct_fields__)

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, name={self.name!r}, data={self.data!r}, attempt={self.attempt})"


def find_timeout_error(job: Job, raised: BaseException) -> BaseException | None:
    """What the run of this job has failed with if its time is over, for what surrounds a handler; else None."""
    found: BaseException | None = job._reporter and job._reporter.stops.find_timeout_error(job._entry_id, raised)
    return found


def count_put_backs(job: Job) -> int:
    """How often the job was put back because no task of a worker had its name."""
    return read_put_back_count(job._extras, PUT_BACKS)


class AddedJob(Job, gc=False):
    """The Job that add() returns. Its data has just been encoded, so it contains no reference cycle."""

    # hot: saves 15 to 30 % of a bulk's time: the garbage collector skips thousands of them


def _to_plain_number(number: float) -> float:
    """The same number as a plain int or float, not of a subclass."""
    return int.__pos__(number) if isinstance(number, int) else float.__pos__(number)
