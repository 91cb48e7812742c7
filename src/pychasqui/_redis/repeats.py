"""What is asked of Redis about repeatables. Whatever is sent can be sent again: each method says why."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ..errors import ReplyError
from ..repeat import LAST_MS
from . import scripts
from .broker import Broker
from .keys import Keys


class DueSpec(NamedTuple):
    """A repeatable that is due, as it is stored."""

    key: str
    score: int
    spec: bytes
    fired: int  # -1 if what is stored is no number
    retry: bytes  # b"" if its jobs have no override


class Due(NamedTuple):
    """What one call of due_repeatables.lua found."""

    leads: bool
    now_ms: int  # the server's
    next_due_ms: int  # from now; -1 if there is none; for one who does not lead, when to try again
    specs: list[DueSpec]


class Fires(NamedTuple):
    """The decision about a repeatable: these jobs now, and then this score, None if that was the last of it."""

    due: DueSpec
    next_ms: int | None
    name: str
    envelopes: list[bytes]


class Stored(NamedTuple):
    """A repeatable, whether due or not."""

    key: str
    score: int
    spec: bytes
    fired: int
    retry: bytes
    is_paused: bool


class RepeatBroker:
    """The conversation about one queue's repeatables, over a broker's connection."""

    def __init__(self, broker: Broker, keys: Keys) -> None:
        self._broker = broker
        self._keys = keys
        self.connection = broker.connection

    # Firing ---------------------------------------------------------------------------------------------------------

    async def due(self, holder: str, lease_ms: int, batch: int) -> Due:
        """Lead for another while, and list what is due. Sending it again asks again."""
        keys = (self._keys.repeat, self._keys.scheduler_lease)
        reply = await self._broker.run(scripts.DUE_REPEATABLES, keys, (holder, lease_ms, batch, self._keys.prefix))
        specs = [
            DueSpec(key.decode("utf-8", "surrogateescape"), _score(score), spec, _count(fired), retry)
            for key, score, spec, fired, retry in reply[3:]
        ]
        return Due(bool(reply[0]), reply[1], reply[2], specs)

    async def fire(self, fires: list[Fires]) -> list[bool]:
        """Add the jobs and move on; whether each was done. What was fired has another score, so nothing fires twice."""
        arguments: list[bytes | str | int] = [self._keys.prefix]
        for due, next_ms, name, envelopes in fires:
            next_score = "" if next_ms is None else next_ms
            arguments += (_raw(due.key), due.score, due.spec, next_score, name, len(envelopes), *envelopes)
        moved = await self._broker.run(scripts.FIRE, (self._keys.stream, self._keys.repeat), tuple(arguments))
        return [bool(one) for one in moved]

    async def set_aside(self, broken: list[tuple[DueSpec, str]]) -> int:
        """Move what cannot be fired to the dead letters, each with what is wrong. The second time it is gone."""
        arguments: list[bytes | str | int] = [self._keys.prefix]
        for due, detail in broken:
            arguments += (_raw(due.key), due.score, due.spec, detail)
        moved = await self._broker.run(scripts.SET_ASIDE, (self._keys.repeat, self._keys.dead), tuple(arguments))
        return int(moved)

    async def yield_lease(self, holder: str) -> None:
        await self._broker.run(scripts.YIELD, (self._keys.scheduler_lease,), (holder,))

    async def hear_of_due(self, on_due: Callable[[float], None]) -> bool:
        """As Broker.hear_of_due, for repeatables."""
        return await self._broker.hear(self._keys.repeat_channel, on_due)

    # Storing --------------------------------------------------------------------------------------------------------

    async def now_ms(self) -> int:
        return await self._broker.now_ms()

    async def upsert(self, key: str, score: int, spec: bytes, retry: bytes, now_ms: int) -> bool:
        """Whether it is new. Sent twice it stores the same twice."""
        keys = (self._keys.repeat, self._keys.repeat_paused, self._keys.repeat_spec(key))
        arguments = (key, score, spec, retry, self._keys.prefix, now_ms)
        return bool(await self._broker.run(scripts.UPSERT_REPEATABLE, keys, arguments))

    async def move(self, what: str, key: str, score: int = 0, now_ms: int = 0) -> bool:
        """Remove, pause or resume; whether it was there. Sent twice, the second finds nothing to do."""
        keys = (self._keys.repeat, self._keys.repeat_paused, self._spec_key(key))
        arguments = (what, _raw(key), score, self._keys.prefix, now_ms)
        return bool(await self._broker.run(scripts.MOVE_REPEATABLE, keys, arguments))

    async def page(self, limit: int) -> list[Stored]:
        """The repeatables that fire next, then those that are paused."""
        if limit < 1:
            return []
        found: list[Stored] = []
        for zset, is_paused in ((self._keys.repeat, False), (self._keys.repeat_paused, True)):
            for raw in await self.connection.call("ZRANGE", zset, 0, limit - 1):
                key = raw.decode("utf-8", "surrogateescape")
                with suppress(ReplyError):  # WRONGTYPE: whatever is stored there is no repeatable
                    stored = await self.read(key, is_paused=is_paused)
                    found += [] if stored is None else [stored]
        return found[:limit]

    async def read(self, key: str, *, is_paused: bool | None = None) -> Stored | None:
        """One of them; None if there is none of that key."""
        if is_paused is None:
            return await self.read(key, is_paused=False) or await self.read(key, is_paused=True)
        zset = self._keys.repeat_paused if is_paused else self._keys.repeat
        score = await self.connection.call("ZSCORE", zset, _raw(key))
        spec, fired, retry = await self.connection.call("HMGET", self._spec_key(key), "spec", "fired", "retry")
        if score is None or spec is None:
            return None
        return Stored(key, _score(score), spec, max(0, _count(fired or b"0")), retry or b"", is_paused)

    def _spec_key(self, key: str) -> bytes:
        return _raw(self._keys.repeat_spec(key))


def _score(raw: bytes | float) -> int:
    """A time, whatever is stored."""
    return int(min(max(float(raw), 0), LAST_MS))


def _count(raw: bytes) -> int:
    return int(raw) if raw.isdigit() and len(raw) < 16 else -1


def _raw(key: str) -> bytes:
    """A key that others have stored may be any bytes."""
    return key.encode("utf-8", "surrogateescape")
