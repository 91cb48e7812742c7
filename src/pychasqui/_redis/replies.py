"""Raw replies become entries. RESP2 and RESP3 differ in shape only; nothing above this file sees which it was."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

# hot: the two-element lists are used as hiredis made them: [id, [field, value, ...]], the fields None if deleted
Entry: TypeAlias = list[Any]


def read_entries(reply: Any) -> list[Entry]:
    """The entries of an XREADGROUP on one stream: None or nothing if there were none."""
    if not reply:
        return []
    if isinstance(reply, dict):
        (entries,) = reply.values()
    else:
        ((_, entries),) = reply
    return entries if isinstance(entries, list) else []


class Bounds(NamedTuple):
    """How much a script may send of entries."""

    max_bytes: int  # together; the last may go beyond it
    max_entry_bytes: int  # of a larger one comes the size alone


class Claimed(NamedTuple):
    """An entry that came otherwise than by a plain read."""

    id: bytes
    fields: list[bytes] | None  # None if it was deleted while it was pending, or is too large
    deliveries: int
    size: int = 0  # of one that is too large


def read_claimed(reply: Any) -> list[Claimed]:
    return [_claimed(entry_id, fields, deliveries) for entry_id, fields, deliveries in reply]


def read_new(reply: Any) -> list[Claimed]:
    """The entries of read.lua: nobody has had them before."""
    return [_claimed(entry_id, fields, 0) for entry_id, fields in reply]


def _claimed(entry_id: bytes, fields: list[bytes] | int | None, deliveries: Any) -> Claimed:
    if isinstance(fields, int):
        return Claimed(entry_id, None, int(deliveries), fields)
    return Claimed(entry_id, fields or None, int(deliveries))


class Promotion(NamedTuple):
    """What one call of promote.lua did."""

    leads: bool
    promoted: int
    set_aside: int
    next_due_ms: int  # from now; -1 if nothing is delayed; for one who had to lead and does not, when to try again
    other: OtherLeader | None = None  # who leads, if it is another


class OtherLeader(NamedTuple):
    """Who leads instead of us."""

    name: str  # of the holder, as far as it is shown
    was_cut: bool  # its lease had no end, or one beyond MAX_LEASE_MS, which it has now
    overdue_ms: int  # for how long the first thing that it should move has been due

    @staticmethod
    def read(reply: list[Any]) -> OtherLeader:
        name, was_cut, overdue_ms = reply
        return OtherLeader(name[:100].decode("utf-8", "backslashreplace"), bool(was_cut), overdue_ms)
