"""The content of a server without ids and times, so that two runs of the same script can be compared."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tests.scripts.group import GROUP, KEYS

HOMES = (KEYS.stream, KEYS.delayed, KEYS.dead)  # where jobs live
A_MINUTE_MS, A_DAY_MS = 60_000, 86_400_000
_ENTRY_ID = re.compile(rb"\d{13,20}-\d+")
_TIME = re.compile(rb"(?<!\d)1[6-9]\d{11}(?!\d)")


class Fact(NamedTuple):
    key: str
    text: str


def facts_of(client: Any) -> frozenset[Fact]:
    """Every fact about every key."""
    keys = sorted(client.keys("*"))
    streams = {key: client.xrange(key) for key in keys if client.type(key) == b"stream"}
    names = {
        entry_id: b"<%s of %s>" % (key, fields.get(b"d", b"?")[:12])
        for key in streams
        for entry_id, fields in streams[key]
    }
    now_ms = int(client.time()[0]) * 1000
    found = []
    for key in keys:
        for fact in _facts_of_key(client, key, streams.get(key), now_ms):
            text = _ENTRY_ID.sub(lambda match: names.get(match[0], b"<gone>"), fact)
            found.append(Fact(key.decode(), _TIME.sub(b"<ms>", text).decode("ascii", "backslashreplace")))
    return frozenset(found)


def _facts_of_key(client: Any, key: bytes, entries: Any, now_ms: int) -> list[bytes]:
    kind = client.type(key)
    if kind == b"stream":
        return _facts_of_stream(client, key, entries)
    if kind == b"zset":
        return [
            b"%s at %s" % (member, _when(score, now_ms)) for member, score in client.zrange(key, 0, -1, withscores=True)
        ]
    if kind == b"hash":
        return [b"%s: %s" % pair for pair in client.hgetall(key).items()]
    if kind == b"string":
        return [b"%s, ends: %d" % (client.get(key), client.ttl(key) >= 0)]
    return [b"a " + kind]


def _facts_of_stream(client: Any, key: bytes, entries: list[tuple[bytes, dict[bytes, bytes]]]) -> list[bytes]:
    holds, facts = {}, []
    for group in client.xinfo_groups(key):
        for hold in client.xpending_range(key, group["name"], "-", "+", 1000):
            rests = hold["time_since_delivered"] > A_MINUTE_MS
            holds[hold["message_id"]] = b"%s has it, by delivery %d, idle: %d" % (
                hold["consumer"],
                hold["times_delivered"],
                rests,
            )
    for entry_id, fields in entries:
        words = b" ".join(word for pair in fields.items() for word in pair)
        facts.append(words + b": " + holds.pop(entry_id, b"nobody has it"))
    return facts + [b"a pending entry without fields: " + hold for hold in holds.values()]


def _when(score: float, now_ms: int) -> bytes:
    """The time a score stands for: as it is, or to ten minutes if it is near.

    A score that is the same in every run must not be compared with a clock that goes on between two of them.
    """
    is_near = abs(score - now_ms) < A_DAY_MS
    return b"%+d ten minutes" % round((score - now_ms) / 600_000) if is_near else str(score).encode()


def of_job(facts: frozenset[Fact], job: str) -> frozenset[Fact]:
    return frozenset(fact for fact in facts if job in fact.text or job in fact.key)


def group_is_there(client: Any) -> bool:
    return any(group["name"] == GROUP.encode() for group in client.xinfo_groups(KEYS.stream))
