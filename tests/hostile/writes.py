"""One hostile write: to any key of a queue, of any kind, with any value. Says which places it leaves in ruins.

A place is ruined if its content may be gone, or if it is unusable until an operator clears it: a wrong type,
the last possible stream id, a cursor that was moved. A value that is only added to a place ruins nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pychasqui._redis.keys import REGISTRY, Keys
from tests.hostile import values

Words = tuple[str | bytes | int, ...]
STREAMS = ("stream", "dlq", "events", "log")
QUEUES = "queues"  # the registry, which all queues share
ZSETS = ("delayed", "workers", "repeat", "repeat:paused", QUEUES)
HASHES = ("repeat:spec", "ledger", "regroup", "cancelled")
BY_JOB = ("didx", "dlid", "unique", "result", "progress")
STRINGS = ("paused", "dlq:dropped", "promoter:lock", "scheduler:lock", "worker", "claim", *BY_JOB)
PLACES = (*STREAMS, *ZSETS, *HASHES, *STRINGS)
GROUP = "default"
MAX_LEADER_LEASE_MS = 3_600_000  # the longest that a worker may have


@dataclass(frozen=True)
class Target:
    """The keys of one queue, and the names that stand in them just now."""

    keys: Keys
    consumer: str
    producer: str
    repeat_key: str
    job_ids: list[str] = field(default_factory=list)

    def key(self, place: str, rng: random.Random) -> str | bytes:
        if place == QUEUES:
            return REGISTRY
        job_id = rng.choice(self.job_ids) if self.job_ids and rng.random() < 0.8 else "nobody"
        named = {
            "repeat:spec": rng.choice((self.repeat_key, "k", "other")),
            "ledger": self.producer,
            "regroup": GROUP,
            "worker": rng.choice((self.consumer, "ghost")),
            "claim": f"{GROUP}:{self.consumer}",
        }
        suffix = job_id if place in (*BY_JOB, "log") else named.get(place)
        return f"{self.keys.prefix}:{place}" + ("" if suffix is None else f":{suffix}")


@dataclass(frozen=True)
class Write:
    about: str
    commands: list[Words]
    ruins: frozenset[str] = frozenset()


def random_write(rng: random.Random, target: Target) -> Write:
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    return kind(rng, target)


def wrong_type(rng: random.Random, target: Target) -> Write:
    place = rng.choice(PLACES)
    key = target.key(place, rng)
    value = values.anything(rng)[:1000]
    made: Words = rng.choice(
        (
            ("SET", key, value),
            ("LPUSH", key, value),
            ("SADD", key, value),
            ("HSET", key, b"x", value),
            ("ZADD", key, "1", value),
            ("XADD", key, "1-1", b"x", value),
        )
    )
    return Write(f"wrong type {made[0]!s} {place}", [("DEL", key), made], frozenset({place}))


def entry(rng: random.Random, target: Target) -> Write:
    place = rng.choice(STREAMS)
    return Write(f"entry {place}", [("XADD", target.key(place, rng), values.entry_id(rng), *values.field_pairs(rng))])


def last_entry(rng: random.Random, target: Target) -> Write:
    """No entry fits behind this one, or only entries in the far future."""
    place = rng.choice(STREAMS)
    where = rng.choice((values.LAST_ID, values.FAR_ID))
    return Write(
        f"last entry {place} {where}",
        [("XADD", target.key(place, rng), where, *values.field_pairs(rng))],
        frozenset({place}),
    )


def member(rng: random.Random, target: Target) -> Write:
    place = rng.choice(ZSETS)
    make = values.member if place == "delayed" else values.anything
    named = rng.choice((make(rng), make(rng), b"k", b"other", b"ghost"))
    score = values.score(rng)
    # A lease that a worker could have taken is believed: while it lasts, others wait for its holder's report.
    is_believed = place == "workers" and abs(float(score) - time.time() * 1000) < MAX_LEADER_LEASE_MS
    ruins = {place} if is_believed else set[str]()
    return Write(f"member {place} {score}", [("ZADD", target.key(place, rng), "NX", score, named)], frozenset(ruins))


def spec(rng: random.Random, target: Target) -> Write:
    """A foreign repeatable, due at any time."""
    name = rng.choice(("k", "other"))
    stored = f"{target.keys.prefix}:repeat:spec:{name}"
    fields: Words = (b"spec", values.spec(rng), b"fired", values.number(rng), b"retry", values.anything(rng))
    keep = rng.choice((2, 4, 6))
    place = rng.choice((target.keys.repeat, target.keys.repeat, target.keys.repeat_paused))
    return Write("spec", [("HSET", stored, *fields[:keep]), ("ZADD", place, values.score(rng), name)])


def rescored(rng: random.Random, target: Target) -> Write:
    """Changes times: delayed jobs come later or never, leases end or never do."""
    place = rng.choice(ZSETS)
    key = target.key(place, rng)
    member = {"repeat": target.repeat_key, "workers": target.consumer}.get(place, "nobody")
    return Write(f"rescored {place}", [("ZADD", key, "XX", values.score(rng), member)], frozenset({place}))


def fields(rng: random.Random, target: Target) -> Write:
    place = rng.choice(HASHES)
    pairs = values.field_pairs(rng)
    if rng.random() < 0.3:
        pairs[0] = values.anything(rng)
    return Write(f"fields {place}", [("HSET", target.key(place, rng), *pairs)], frozenset({place}))


def string(rng: random.Random, target: Target) -> Write:
    place = rng.choice(STRINGS)
    make = values.worker_record if place == "worker" else values.anything
    end: Words = rng.choice(((), ("PX", 1), ("PX", 2**50), ("KEEPTTL",)))
    return Write(f"string {place}", [("SET", target.key(place, rng), make(rng), *end)], frozenset({place}))


def removed(rng: random.Random, target: Target) -> Write:
    place = rng.choice(PLACES)
    key = target.key(place, rng)
    other = target.key(rng.choice(PLACES), rng)
    words: Words = rng.choice((("DEL", key), ("PEXPIRE", key, 1), ("RENAME", key, other), ("PERSIST", key)))
    places = {place} if words[0] != "RENAME" else {place, *_places_of(other, target)}
    return Write(f"removed {words[0]!s} {place}", [words], frozenset(places))


def copied(rng: random.Random, target: Target) -> Write:
    source, place = target.key(rng.choice(PLACES), rng), rng.choice(PLACES)
    return Write(f"copied {place}", [("COPY", source, target.key(place, rng), "REPLACE")], frozenset({place}))


def cursor(rng: random.Random, target: Target) -> Write:
    """The group's cursor, its consumers and what is pending for them."""
    stream = target.keys.stream
    words: Words = rng.choice(
        (
            ("XGROUP", "SETID", stream, GROUP, rng.choice(("0", "$", values.FAR_ID))),
            ("XGROUP", "DELCONSUMER", stream, GROUP, target.consumer),
            ("XTRIM", stream, "MAXLEN", 0),
            ("XSETID", stream, values.FAR_ID),
            ("XACK", stream, GROUP, "1-1", "2-2"),
        )
    )
    return Write(f"cursor {words[0]!s} {words[1]!s}", [words], frozenset({"stream"}))


def group(rng: random.Random, target: Target) -> Write:
    """Creates and removes groups and consumers, which harms no job."""
    stream = target.keys.stream
    words: Words = rng.choice(
        (
            ("XGROUP", "DESTROY", stream, GROUP),
            ("XGROUP", "CREATE", stream, "another", "0"),
            ("XGROUP", "CREATECONSUMER", stream, GROUP, rng.choice((b"ghost", b"\xff\x00", b"x" * 5000))),
        )
    )
    return Write(f"group {words[1]!s}", [words])


def message(rng: random.Random, target: Target) -> Write:
    keys = target.keys
    channel = rng.choice((keys.due_channel, keys.pause_channel, keys.repeat_channel))
    word = rng.choice((b"pause", b"resume", values.anything(rng), values.number(rng)))
    return Write("message", [("PUBLISH", channel, word)] * rng.choice((1, 20)))


def scripts_gone(rng: random.Random, target: Target) -> Write:
    return Write("scripts gone", [("SCRIPT", "FLUSH")])


KINDS: dict[Callable[[random.Random, Target], Write], int] = {
    wrong_type: 20,
    entry: 16,
    last_entry: 4,
    member: 12,
    spec: 12,
    rescored: 5,
    fields: 5,
    string: 10,
    removed: 6,
    copied: 4,
    cursor: 3,
    group: 3,
    message: 4,
    scripts_gone: 1,
}


def _places_of(key: str | bytes, target: Target) -> set[str]:
    name = key if isinstance(key, str) else key.decode("utf-8", "replace")
    rest = name.removeprefix(target.keys.prefix + ":")
    return {place for place in PLACES if rest == place or rest.startswith(f"{place}:")}
