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


# Each key with its type and its content, and each entry of a stream that a consumer holds; and the time. One call,
# because the tests of refusals ask a few thousand times.
SNAPSHOT = """
    local found = {}
    for _, key in ipairs(redis.call('KEYS', '*')) do
      local kind = redis.call('TYPE', key).ok
      local content, holds = {}, {}
      if kind == 'stream' then
        content = redis.call('XRANGE', key, '-', '+')
        for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do
          for _, hold in ipairs(redis.call('XPENDING', key, group[2], '-', '+', 1000)) do
            holds[#holds + 1] = hold
          end
        end
      elseif kind == 'zset' then
        content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
      elseif kind == 'hash' then
        content = redis.call('HGETALL', key)
      elseif kind == 'string' then
        content = {redis.call('GET', key), redis.call('TTL', key)}
      end
      found[#found + 1] = {key, kind, content, holds}
    end
    return {redis.call('TIME')[1], found}
"""


def facts_of(client: Any) -> frozenset[Fact]:
    """Every fact about every key."""
    seconds, keys = client.eval(SNAPSHOT, 0)
    names = {
        entry_id: b"<%s of %s>" % (key, _pairs(words).get(b"d", b"?")[:12])
        for key, kind, content, _ in keys
        if kind == b"stream"
        for entry_id, words in content
    }
    found = []
    for key, kind, content, holds in keys:
        for fact in _facts_of_key(kind, content, holds, int(seconds) * 1000):
            text = _ENTRY_ID.sub(lambda match: names.get(match[0], b"<gone>"), fact)
            found.append(Fact(key.decode(), _TIME.sub(b"<ms>", text).decode("ascii", "backslashreplace")))
    return frozenset(found)


def _pairs(words: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(words[::2], words[1::2], strict=True))


def _facts_of_key(kind: bytes, content: list[Any], holds: list[Any], now_ms: int) -> list[bytes]:
    if kind == b"stream":
        return _facts_of_stream(content, holds)
    if kind == b"zset":
        return [b"%s at %s" % (member, _when(float(score), now_ms)) for member, score in _pairs(content).items()]
    if kind == b"hash":
        return [b"%s: %s" % pair for pair in _pairs(content).items()]
    if kind == b"string":
        return [b"%s, ends: %d" % (content[0], content[1] >= 0)]
    return [b"a " + kind]


def _facts_of_stream(entries: list[tuple[bytes, list[bytes]]], pending: list[Any]) -> list[bytes]:
    holds = {
        entry_id: b"%s has it, by delivery %d, idle: %d" % (consumer, deliveries, idle_ms > A_MINUTE_MS)
        for entry_id, consumer, idle_ms, deliveries in pending
    }
    facts = []
    for entry_id, words in entries:
        text = b" ".join(word for pair in _pairs(words).items() for word in pair)
        facts.append(text + b": " + holds.pop(entry_id, b"nobody has it"))
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
