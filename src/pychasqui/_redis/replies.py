"""Raw replies become values: the shapes that replies share, and the replies of scripts.

command_replies.py has those of plain commands. RESP2 and RESP3 differ in shape only; nothing above these two files sees
which it was. A reply that is not what the command or the script answers with becomes a ReplyError, which every loop
outlasts: something between the server and here may answer anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, NamedTuple, ParamSpec, TypeVar

from .._wire.entry import Entry as Entry
from ..errors import ChasquiError, ReplyError

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")
UNREADABLE = (TypeError, ValueError, LookupError, AttributeError, OverflowError)


def make_reader_raise_reply_error(read: Callable[P, T]) -> Callable[P, T]:
    """Makes a function of a reply raise ReplyError for what it cannot read."""

    @wraps(read)
    def checked(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return read(*arguments, **options)
        except UNREADABLE:
            raise _make_unreadable_error(read.__name__.removeprefix("read_"), arguments[0]) from None

    return checked


def _make_unreadable_error(expected: str, reply: object) -> ReplyError:
    return ReplyError(f"UNREADABLE the server's reply is no {expected}: {reply!r:.100}")


def make_methods_raise_reply_error(broker: type[C]) -> type[C]:
    """Makes the methods of a broker, of which none is hot, raise ReplyError for what they cannot read in a reply."""
    for name, method in list(vars(broker).items()):
        if iscoroutinefunction(method):
            setattr(broker, name, _wrap_method_to_raise_reply_error(method))
        elif isasyncgenfunction(method):
            setattr(broker, name, _wrap_generator_to_raise_reply_error(method))
    return broker


def _wrap_method_to_raise_reply_error(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def checked(*arguments: Any, **options: Any) -> Any:
        with _raising_reply_error(method.__name__):
            return await method(*arguments, **options)

    return checked


def _wrap_generator_to_raise_reply_error(method: Callable[..., AsyncIterator[T]]) -> Callable[..., AsyncIterator[T]]:
    @wraps(method)
    async def checked(*arguments: Any, **options: Any) -> AsyncIterator[T]:
        with _raising_reply_error(method.__name__):
            async for item in method(*arguments, **options):
                yield item

    return checked


@contextmanager
def _raising_reply_error(method_name: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        if isinstance(error, ChasquiError):
            raise
        raise ReplyError(f"UNREADABLE the server's reply to {method_name}: {error!r:.100}") from error


def read_entries_of_one_stream(reply: Any) -> list[Entry]:
    """Returns the entries of an XREADGROUP or XREAD on one stream; the reply is None or empty if there are none."""
    if not reply:
        return []
    try:  # hot: a job that is alone waits for this, and each call made here is 0.7 us of a cold cache
        if type(reply) is dict:
            (entries,) = reply.values()
        else:
            ((_, entries),) = reply
        if type(entries) is list and len(entries) == 1 and len(entry := entries[0]) == 2 and type(entry[1]) is list:
            return entries
        return require_entries(entries or [])
    except UNREADABLE:
        raise _make_unreadable_error("entries", reply) from None


@make_reader_raise_reply_error
def read_range(reply: Any) -> list[Entry]:
    """Returns the entries of an XRANGE."""
    entries = require_entries(reply)
    for entry_id, _ in entries:
        require_bytes(entry_id)
    return entries


def require_entries(entries: Any) -> list[Entry]:
    if type(entries) is not list:
        raise TypeError
    for _, fields in entries:  # hot: 15 ns an entry
        if type(fields) is not list and fields is not None:
            raise TypeError
    return entries


class ByteBounds(NamedTuple):
    """How much a script may send of entries."""

    max_bytes: int  # together; the last may go beyond it
    max_entry_bytes: int  # of a larger one comes the size alone


class ClaimedEntry(NamedTuple):
    """An entry that came otherwise than by a plain read."""

    id: bytes
    fields: list[bytes] | None  # None if it was deleted while it was pending, or is too large
    deliveries: int
    size: int = 0  # of one that is too large


@make_reader_raise_reply_error
def read_entries_with_delivery_counts(reply: Any) -> list[ClaimedEntry]:
    return [_read_claimed_entry(entry_id, fields, deliveries) for entry_id, fields, deliveries in require_list(reply)]


@make_reader_raise_reply_error
def read_new_entries(reply: Any) -> list[ClaimedEntry]:
    """Returns the entries of read.lua: no consumer has had them before."""
    return [_read_claimed_entry(entry_id, fields, 0) for entry_id, fields in require_list(reply)]


def _read_claimed_entry(entry_id: Any, fields: Any, deliveries: Any) -> ClaimedEntry:
    if type(fields) is int:
        return ClaimedEntry(require_bytes(entry_id), None, as_delivery_count(deliveries), fields)
    return ClaimedEntry(
        require_bytes(entry_id), require_list(fields) if fields else None, as_delivery_count(deliveries)
    )


class Promotion(NamedTuple):
    """What one call of promote.lua did."""

    leads: bool
    promoted: int
    buried_count: int
    next_due_ms: int  # from now; -1 if nothing is delayed; if another process leads, when to try again
    other: OtherLeader | None = None  # the process that leads, if it is another
    refusal: str = ""  # why others that are due stay delayed


class OtherLeader(NamedTuple):
    """The other process that leads."""

    name: str  # of the holder, as far as it is shown
    was_cut: bool  # its lease had no end, or one beyond MAX_LEADER_LEASE_MS, which it has now
    overdue_ms: int  # for how long the first thing that it should move has been due

    @staticmethod
    def from_reply(reply: list[Any]) -> OtherLeader:
        name, was_cut, overdue_ms = reply
        return OtherLeader(
            require_bytes(name)[:100].decode("utf-8", "backslashreplace"), bool(was_cut), require_int(overdue_ms)
        )


@make_reader_raise_reply_error
def read_promotion(reply: Any) -> Promotion:
    leads, promoted, buried, next_due_ms, *rest = reply
    counts = (require_int(promoted), require_int(buried), require_int(next_due_ms))
    if not require_int(leads):
        return Promotion(False, *counts, OtherLeader.from_reply(rest))
    (refusal,) = rest
    return Promotion(True, *counts, None, as_text(refusal))


# What became of a job that was to be added, as add_with_options.lua says it.
NEW, DUPLICATE, REPLACED, FULL = "n", "d", "r", "f"
ADD_STATUSES = (NEW + DUPLICATE + REPLACED + FULL).encode()

# lost: it is not this run's any more; refused and cancelled: it stays as it was
MOVED, LOST, REFUSED, CANCELLED = b"10xc"


class SettledJobs(NamedTuple):
    """What became of each job of one call of reschedule.lua or bury.lua."""

    answers: bytes  # a character for each
    refusal: str = ""  # why those with an x were refused
    refused_events: int = 0


@make_reader_raise_reply_error
def read_settled_jobs(reply: Any, jobs: int) -> SettledJobs:
    answers, refusal, refused_events = reply
    if len(require_bytes(answers)) != jobs or answers.strip(b"01xc"):
        raise ValueError
    return SettledJobs(answers, as_text(refusal), require_int(refused_events))


class MovedCount(NamedTuple):
    """How many of a batch were moved, and why the others were not, if that was refused."""

    number: int
    refusal: str


@make_reader_raise_reply_error
def read_moved_count(reply: Any) -> MovedCount:
    count, refusal = reply
    return MovedCount(require_int(count), as_text(refusal))


class ReleasedEntries(NamedTuple):
    """What one call of release_entries.lua did."""

    released: int
    looked_at: int  # how many of the entries, from the first on; 0 if the call came too late


@make_reader_raise_reply_error
def read_released_entries(reply: Any) -> ReleasedEntries:
    released, looked_at = reply
    if require_int(looked_at) < 0:
        raise ValueError
    return ReleasedEntries(require_int(released), looked_at)


class FoundFlags(NamedTuple):
    """Whether each of the first of a batch was found, and why those behind them were not tried; "" if there was no time
    for more."""

    each: list[bool]
    refusal: str


@make_reader_raise_reply_error
def read_found_flags(reply: Any) -> FoundFlags:
    each, refusal = reply
    return FoundFlags(read_flags(each), as_text(refusal))


@make_reader_raise_reply_error
def read_flags(reply: Any) -> list[bool]:
    return [bool(require_int(one)) for one in require_list(reply)]


@make_reader_raise_reply_error
def read_count(reply: Any) -> int:
    return require_int(reply)


class OtherClaim(NamedTuple):
    """The other worker that has a name, if there is one."""

    lease: int  # when its lease ends, in ms of the server's clock; 0 if it is still starting
    left_ms: int  # how long to wait for its end; 0: there is no other


@make_reader_raise_reply_error
def read_other_claim(reply: Any) -> OtherClaim:
    lease, left_ms = require_list(reply)
    return OtherClaim(require_int(lease), require_int(left_ms))


class QueueFlags(NamedTuple):
    """What stands beside a queue for its workers to see."""

    is_paused: bool
    has_cancellations: bool


class RenewalResult(NamedTuple):
    """What one call of renew_worker_lease.lua found."""

    flags: QueueFlags | None  # None: the server does not say
    living_count: int  # workers of the group whose leases go on
    ended_count: int  # leases that are over, or of workers that have left
    lost: list[bytes]  # entries that are no longer this worker's by the delivery that it knows


@make_reader_raise_reply_error
def read_renewal_result(reply: Any) -> RenewalResult:
    is_paused, has_cancellations, living, over, lost = require_list(reply)
    is_known = require_int(is_paused) >= 0 and require_int(has_cancellations) >= 0
    flags = QueueFlags(bool(is_paused), bool(has_cancellations)) if is_known else None
    return RenewalResult(flags, require_int(living), require_int(over), read_bytes_list(lost))


@make_reader_raise_reply_error
def read_bytes_list(reply: Any) -> list[bytes]:
    return [require_bytes(entry_id) for entry_id in require_list(reply)]


def as_delivery_count(value: Any) -> int:
    """Returns a number of deliveries. Any client may set it, and the server shows one beyond 2^63 as negative."""
    return require_int(value) if value >= 0 else 2**63


def require_int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def require_bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise TypeError
    return value


def require_list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError
    return value


def as_text(value: Any) -> str:
    """Returns the text of an error."""
    return require_bytes(value).decode("utf-8", "replace")
