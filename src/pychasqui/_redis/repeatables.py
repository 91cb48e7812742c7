"""The conversation with Redis about repeatables. Every call that writes can be sent again: its docstring says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from .._core.limits import MAX_LEADER_LEASE_MS
from .._wire.lenient import read_int, read_time_ms_or_zero
from .._wire.repeatable import HASH_FIELDS, encode_override_for_spec, read_override_if_for_this_spec
from ..errors import ReplyError
from . import scripts
from .broker import Broker
from .keys import Keys
from .replies import OtherLeader, make_methods_raise_reply_error

# A spec holds a payload, which is bounded, a name, and a pattern of some text.
MAX_SPEC_BYTES = 2 * 1024 * 1024
MAX_SPECS_BYTES = 4 * 1024 * 1024  # of all that one call lists, but for the first
MAX_FIRED = 10**15  # a script adds to it, and Lua's numbers are exact up to 2**53
READS_AT_ONCE = 50  # of repeatables that are listed: one after another, each would take two round trips
BURY_RETRY_MS = 60_000  # when to try again to bury what the dead letters refuse


class DueSpec(NamedTuple):
    """A repeatable that is due, as it is stored."""

    key: str
    score: int
    spec: bytes  # b"" if it has more than MAX_SPEC_BYTES
    fired: int  # -1 if what is stored is no number of fires
    retry: bytes  # b"" if its jobs have no override
    size: int  # of the spec, in bytes


class DueRepeatables(NamedTuple):
    """What one call of due_repeatables.lua found."""

    leads: bool
    now_ms: int  # the server's
    next_due_ms: int  # from now; -1 if there is none; if another process leads, when to try again
    specs: list[DueSpec]
    other: OtherLeader | None = None  # the process that leads, if it is another


class FireDecision(NamedTuple):
    """The decision about a repeatable: these jobs now, and then this score, None if that was the last of it."""

    due: DueSpec
    next_ms: int | None
    name: str
    envelopes: list[bytes]


class UpsertedRepeatable(NamedTuple):
    """A repeatable as it is after an upsert."""

    score: int
    fired: int
    is_paused: bool


class StoredRepeatable(NamedTuple):
    """A repeatable, whether due or not."""

    key: str
    score: int
    spec: bytes
    fired: int
    retry: bytes
    is_paused: bool


@make_methods_raise_reply_error
class RepeatablesBroker:
    """The conversation about one queue's repeatables, over a broker's connection."""

    def __init__(self, broker: Broker, keys: Keys) -> None:
        self._broker = broker
        self._call = broker.call
        self._keys = keys

    @property
    def is_connected(self) -> bool:
        return self._broker.is_connected

    # Firing ---------------------------------------------------------------------------------------------------------

    async def try_to_lead_and_list_due(self, holder: str, lease_ms: int, batch: int) -> DueRepeatables:
        """Renews the leader's lease, and lists the repeatables that are due. Safe to send again."""
        keys = (self._keys.repeat, self._keys.scheduler_lease, self._keys.repeat_paused)
        arguments = (holder, lease_ms, batch, self._keys.prefix, MAX_LEADER_LEASE_MS, MAX_SPEC_BYTES, MAX_SPECS_BYTES)
        leads, now_ms, next_due_ms, *rest = await self._broker.run_script(scripts.DUE_REPEATABLES, keys, arguments)
        if not leads:
            return DueRepeatables(False, now_ms, next_due_ms, [], OtherLeader.from_reply(rest))
        specs = [
            DueSpec(
                key.decode("utf-8", "surrogateescape"),
                read_time_ms_or_zero(score),
                spec,
                _read_fire_count_or_minus_one(fired),
                retry,
                size,
            )
            for key, score, spec, fired, retry, size in rest
        ]
        return DueRepeatables(True, now_ms, next_due_ms, specs)

    async def fire_those_unchanged(self, fires: list[FireDecision]) -> list[bool]:
        """Adds the jobs and sets the next times; returns whether each was done. Sent again, it finds other scores."""
        keys: tuple[str | bytes, ...] = (self._keys.stream, self._keys.repeat)
        keys += tuple(self._make_spec_key(one.due.key) for one in fires)
        arguments: list[bytes | str | int] = []
        for due, next_ms, name, envelopes in fires:
            next_score = "" if next_ms is None else next_ms
            arguments += (_encode_key(due.key), due.score, due.spec, next_score, name, len(envelopes), *envelopes)
        moved = await self._broker.run_script(scripts.FIRE, keys, tuple(arguments))
        return [bool(one) for one in moved]

    async def try_to_bury_repeatable(self, due: DueSpec, detail: str, now_ms: int) -> str | None:
        """Moves what cannot be fired to the dead letters; returns why they refuse it, "" if they do not.

        Returns None if it stays, because it is not what was listed any more. What is refused is due again later. Sent
        again, it finds that it is gone, or not due.
        """
        arguments = (now_ms + BURY_RETRY_MS, _encode_key(due.key), due.score, due.size, due.spec, detail)
        keys = (self._keys.repeat, self._keys.dead, self._make_spec_key(due.key))
        moved, refusal = await self._broker.run_script(scripts.BURY_REPEATABLE, keys, arguments)
        return str(refusal.decode("utf-8", "replace")) if moved or refusal else None

    async def release_scheduler_lease_if_held(self, holder: str) -> None:
        await self._broker.run_script(scripts.RELEASE_LEADER_LEASE, (self._keys.scheduler_lease,), (holder,))

    async def try_to_subscribe_to_due_hints(self, on_due_in_s: Callable[[float], None]) -> bool:
        """Does what Broker.try_to_subscribe_to_due_hints() does, for repeatables."""
        return await self._broker.try_to_subscribe_to_due_channel(self._keys.repeat_channel, on_due_in_s)

    # Storing --------------------------------------------------------------------------------------------------------

    async def read_server_time_ms(self) -> int:
        return await self._broker.read_server_time_ms()

    async def upsert_if_spec_unchanged(
        self, key: str, score: int, spec: bytes, retry: bytes, now_ms: int, *, expected_spec: bytes, keeps_times: bool
    ) -> UpsertedRepeatable | None:
        """Stores it if its present spec is `expected_spec`; else returns None.

        Sent twice, the second finds another spec there.
        """
        keys = (self._keys.repeat, self._keys.repeat_paused, self._make_spec_key(key))
        bound = retry and encode_override_for_spec(spec, retry)
        channel = await self._broker.find_channel_name_at_server(self._keys.repeat_channel)
        arguments = (_encode_key(key), score, spec, bound, channel, now_ms, expected_spec, int(keeps_times))
        reply = await self._broker.run_script(scripts.UPSERT_REPEATABLE, keys, arguments)
        if not reply:
            return None
        _, stored_score, fired, is_paused = reply
        return UpsertedRepeatable(
            read_time_ms_or_zero(stored_score), max(0, _read_fire_count_or_minus_one(fired)), bool(is_paused)
        )

    async def remove_pause_or_resume(self, action: str, key: str, score: int = 0, now_ms: int = 0) -> bool:
        """Removes, pauses or resumes it; returns whether there was something to do. Sent again, there is not."""
        keys = (self._keys.repeat, self._keys.repeat_paused, self._make_spec_key(key))
        channel = await self._broker.find_channel_name_at_server(self._keys.repeat_channel)
        arguments = (action, _encode_key(key), score, channel, now_ms)
        return bool(await self._broker.run_script(scripts.REMOVE_PAUSE_OR_RESUME_REPEATABLE, keys, arguments))

    async def list_soonest_then_paused(self, limit: int) -> list[StoredRepeatable]:
        """Returns the repeatables that fire next, then those that are paused."""
        if limit < 1:
            return []
        found: dict[str, StoredRepeatable] = {}  # one that is in both sets fires
        for zset, is_paused in ((self._keys.repeat, False), (self._keys.repeat_paused, True)):
            names = await self._call("ZRANGE", zset, 0, limit - 1)
            keys = [key for raw in names if (key := raw.decode("utf-8", "surrogateescape")) not in found]
            for start in range(0, len(keys), READS_AT_ONCE):
                reads = (
                    self._read_repeatable_if_readable(key, is_paused=is_paused)
                    for key in keys[start : start + READS_AT_ONCE]
                )
                found |= {stored.key: stored for stored in await asyncio.gather(*reads) if stored is not None}
        return list(found.values())[:limit]

    async def _read_repeatable_if_readable(self, key: str, *, is_paused: bool) -> StoredRepeatable | None:
        try:
            return await self._read_repeatable_in_set(key, is_paused=is_paused)
        except ReplyError:  # WRONGTYPE: whatever is stored there is no repeatable
            return None

    async def read_repeatable(self, key: str) -> StoredRepeatable | None:
        """Returns the repeatable of this key, or None. One that is in both sets fires."""
        return await self._read_repeatable_in_set(key, is_paused=False) or await self._read_repeatable_in_set(
            key, is_paused=True
        )

    async def _read_repeatable_in_set(self, key: str, *, is_paused: bool) -> StoredRepeatable | None:
        zset = self._keys.repeat_paused if is_paused else self._keys.repeat
        score = await self._call("ZSCORE", zset, _encode_key(key))
        spec, fired, retry = await self._call("HMGET", self._make_spec_key(key), *HASH_FIELDS)
        if score is None or spec is None:
            return None
        override = b"" if retry is None else read_override_if_for_this_spec(spec, retry)
        return StoredRepeatable(
            key,
            read_time_ms_or_zero(score),
            spec,
            max(0, _read_fire_count_or_minus_one(fired or b"0")),
            override,
            is_paused,
        )

    def _make_spec_key(self, key: str) -> bytes:
        return _encode_key(self._keys.repeat_spec(key))


def _read_fire_count_or_minus_one(raw: Any) -> int:
    """Returns how often it has fired; -1 for what is no number, or beyond MAX_FIRED."""
    count = read_int(raw, 0, MAX_FIRED)
    return -1 if count is None else count


def _encode_key(key: str) -> bytes:
    """Encodes a key: one that others have stored may be any bytes."""
    return key.encode("utf-8", "surrogateescape")
