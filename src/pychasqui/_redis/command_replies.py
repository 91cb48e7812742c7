"""The replies of plain commands become values; replies.py has those of scripts."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .replies import as_delivery_count, make_reader_raise_reply_error, require_bytes, require_int, require_list


@make_reader_raise_reply_error
def read_ackdel_codes(reply: Any, count: int) -> list[int]:
    """Returns one code for each entry of an XACKDEL."""
    if len(require_list(reply)) != count:
        raise ValueError
    return list(reply)


@make_reader_raise_reply_error
def read_stored_bytes(reply: Any) -> bytes | None:
    """Returns a stored string."""
    return None if reply is None else require_bytes(reply)


@make_reader_raise_reply_error
def read_stored_bytes_list(reply: Any, count: int) -> list[bytes | None]:
    """Returns stored strings, None where there is none."""
    if len(require_list(reply)) != count:
        raise ValueError
    return [None if one is None else require_bytes(one) for one in reply]


@make_reader_raise_reply_error
def read_members_with_scores(reply: Any) -> list[tuple[bytes, float]]:
    """Returns members of a sorted set with their scores: pairs under RESP3, one after the other under RESP2."""
    if require_list(reply) and isinstance(reply[0], list):
        return [(require_bytes(member), float(score)) for member, score in reply]
    return [(require_bytes(member), float(score)) for member, score in zip(reply[::2], reply[1::2], strict=True)]


@make_reader_raise_reply_error
def read_score(reply: Any) -> float | None:
    return None if reply is None else float(reply)


@make_reader_raise_reply_error
def read_time_ms(reply: Any) -> int:
    seconds, micros = reply
    return int(seconds) * 1000 + int(micros) // 1000


@make_reader_raise_reply_error
def read_last_pending_id(reply: Any) -> bytes | None:
    """Returns the last entry that is pending for any consumer, from XPENDING's summary."""
    _, _, last, _ = reply
    return None if last is None else require_bytes(last)


@make_reader_raise_reply_error
def read_pending_count_by_consumer(reply: Any) -> dict[bytes, int]:
    """Returns how many entries each consumer holds, from XPENDING's summary."""
    _, _, _, holders = reply
    return {require_bytes(name): int(count) for name, count in holders or ()}


class PendingEntry(NamedTuple):
    """One entry of XPENDING: it is delivered to this consumer and not acked."""

    entry_id: bytes
    consumer: bytes
    idle_ms: int
    deliveries: int


@make_reader_raise_reply_error
def read_pending_entries(reply: Any) -> list[PendingEntry]:
    return [
        PendingEntry(
            require_bytes(entry_id), require_bytes(consumer), require_int(idle_ms), as_delivery_count(deliveries)
        )
        for entry_id, consumer, idle_ms, deliveries in require_list(reply)
    ]


@make_reader_raise_reply_error
def read_last_delivered_id_by_group(reply: Any) -> dict[bytes, bytes]:
    """Returns the last delivered id of each group, from XINFO GROUPS."""
    groups = map(_as_field_map, require_list(reply))
    return {require_bytes(group[b"name"]): require_bytes(group[b"last-delivered-id"]) for group in groups}


@make_reader_raise_reply_error
def read_group_lag(reply: Any, group: bytes) -> int | None:
    """Returns how many entries a group has not read yet, from XINFO GROUPS; None if the server does not know."""
    for fields in map(_as_field_map, require_list(reply)):
        if fields[b"name"] == group and (lag := fields.get(b"lag")) is not None:  # Redis 6.2 has no such field
            return require_int(lag)
    return None


@make_reader_raise_reply_error
def read_scan_page(reply: Any) -> tuple[bytes, list[bytes]]:
    cursor, keys = reply
    return require_bytes(cursor), require_list(keys)


@make_reader_raise_reply_error
def read_newest_id(reply: Any) -> str:
    """Returns the id of the one entry of an XREVRANGE; "0-0" if there is none."""
    return require_bytes(reply[0][0]).decode() if require_list(reply) else "0-0"


@make_reader_raise_reply_error
def read_idle_ms_by_consumer(reply: Any) -> dict[bytes, int]:
    """Returns how many ms ago each consumer was last seen, from XINFO CONSUMERS."""
    return {
        require_bytes(fields[b"name"]): require_int(fields[b"idle"])
        for fields in map(_as_field_map, require_list(reply))
    }


class ConsumerState(NamedTuple):
    """A consumer of a group."""

    name: str
    pending: int  # entries that it holds
    idle_ms: int  # since it was last seen


@make_reader_raise_reply_error
def read_consumer_states(reply: Any) -> list[ConsumerState]:
    """Returns the consumers of an XINFO CONSUMERS."""
    return [
        ConsumerState(
            require_bytes(fields[b"name"]).decode("utf-8", "replace"),
            require_int(fields[b"pending"]),
            require_int(fields[b"idle"]),
        )
        for fields in map(_as_field_map, require_list(reply))
    ]


@make_reader_raise_reply_error
def read_pending_count(reply: Any) -> int:
    """Returns how many entries are pending, from XPENDING's summary."""
    return require_int(require_list(reply)[0])


def decode_info_text(reply: Any) -> str:
    """Returns the text of INFO. Under RESP3 it comes as a verbatim string, of which hiredis leaves the text."""
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)


def find_client_count(reply: Any) -> int | None:
    """Returns how many clients are connected, from INFO; None if the reply does not say."""
    found = re.search(r"^connected_clients:(\d{1,9})\s*$", decode_info_text(reply), re.MULTILINE)
    return None if found is None else int(found[1])


def _as_field_map(reply: Any) -> dict[bytes, Any]:
    """Returns an element of an XINFO as a map. It is a map under RESP3, names and values in turn under RESP2."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
