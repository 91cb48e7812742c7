"""Repeatables: stores, lists, pauses, resumes and removes them. The scheduler of a worker fires them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._core.checks import check_and_encode_job_name, check_int
from ._core.defaults import MAX_PAYLOAD_BYTES
from ._core.fire_plan import find_fire_ms_after_pause, find_first_fire_ms
from ._core.fire_times import next_fires
from ._core.options import Backoff
from ._core.repeat_pattern import (
    MissedFiresPolicy,
    RepeatPattern,
    RepeatSpec,
    check_and_make_missed_fires_policy,
    check_and_make_repeat_pattern,
)
from ._core.retry_options import RetryOverride, check_and_make_retry_override
from ._redis.repeatables import RepeatablesBroker, StoredRepeatable
from ._wire.msgpack import decode_data, encode_data
from ._wire.repeatable import decode_spec, encode_spec
from ._wire.retry_override import decode_retry, encode_retry
from .errors import DecodeError, InvalidArgument, InvalidType, PayloadTooLarge, RedisTrouble

MAX_KEY_BYTES = 1024
STORE_ATTEMPTS = 20


@dataclass(frozen=True)
class RepeatableMeta:
    """A repeatable, as get_repeatable_jobs() lists it."""

    key: str
    job_name: str
    pattern: RepeatPattern
    next_fire_ms: int
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    missed_fires: MissedFiresPolicy | None = None  # None for skip
    fired: int = 0  # how often it has fired since it was stored
    is_paused: bool = False


@dataclass(frozen=True)
class Repeatable:
    """One repeatable with the data and retry options of its jobs."""

    meta: RepeatableMeta
    data: Any
    retry: RetryOverride | None


class Repeatables:
    """`queue.repeatables`. Each repeatable has a key; the default key is made of the job name and the pattern."""

    def __init__(self, get_broker: Callable[[], RepeatablesBroker]) -> None:
        self._get_broker = get_broker

    async def upsert(
        self,
        name: str,
        data: Any = None,
        *,
        repeat: RepeatPattern | dict[str, Any],
        key: str | None = None,
        limit: int | None = None,
        start_after_ms: int | None = None,
        end_before_ms: int | None = None,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        missed_fires: MissedFiresPolicy | dict[str, Any] | None = None,
        dry_run: bool = False,
    ) -> RepeatableMeta:
        """Store a repeatable, or change the one with its key.

        If that has the same times, which is to say the same pattern, start_after_ms and end_before_ms, it keeps its
        next time, its count of fires and its pause; a program may store its repeatables at every start. If it has
        others, it begins from the start, as if it had never fired. With `dry_run` it is only checked, and the answer is
        what it would be.
        """
        check_and_encode_job_name(name)
        spec = RepeatSpec(
            key=_check_key_for_storing(key),
            job_name=name,
            pattern=check_and_make_repeat_pattern(repeat),
            payload=_encode_and_check_payload(data),
            limit=limit,
            start_after_ms=start_after_ms,
            end_before_ms=end_before_ms,
            missed_fires=check_and_make_missed_fires_policy(missed_fires),
        )
        retry = None if attempts is None and backoff is None else check_and_make_retry_override(attempts, backoff)
        raw_retry = b"" if retry is None else encode_retry(retry)
        return _to_meta(spec, await self._store_or_only_check_spec(spec, encode_spec(spec), raw_retry, dry_run=dry_run))

    async def _store_or_only_check_spec(
        self, spec: RepeatSpec, raw: bytes, retry: bytes, *, dry_run: bool
    ) -> StoredRepeatable:
        """Stores the spec if it has not changed since it was read; else reads it and decides again."""
        for _ in range(STORE_ATTEMPTS):
            there = await self._get_broker().read_repeatable(spec.key)
            now_ms = await self._get_broker().read_server_time_ms()
            keeps_times = there is not None and _has_same_times(there, spec)
            first_ms = 0 if keeps_times else _check_has_fire(spec, find_first_fire_ms(spec, now_ms))
            if dry_run:
                new = StoredRepeatable(spec.key, first_ms, raw, 0, retry, is_paused=False)
                return there if there is not None and keeps_times else new
            expected_spec = b"" if there is None else there.spec
            done = await self._get_broker().upsert_if_spec_unchanged(
                spec.key, first_ms, raw, retry, now_ms, expected_spec=expected_spec, keeps_times=keeps_times
            )
            if done is not None:
                return StoredRepeatable(spec.key, done.score, raw, done.fired, retry, done.is_paused)
        raise RedisTrouble(
            f"repeatable {spec.key[:200]!r} was changed by others during each of {STORE_ATTEMPTS} attempts to store it"
        )

    async def page(self, limit: int = 100) -> list[RepeatableMeta]:
        """Lists the repeatables that fire next, then the paused ones. Leaves out any that cannot be decoded."""
        found = []
        for stored in await self._get_broker().list_soonest_then_paused(check_int("limit", limit, 0)):
            try:
                found.append(_to_meta(decode_spec(stored.spec), stored))
            except DecodeError:
                continue
        return found

    async def get(self, key: str) -> Repeatable | None:
        """Returns one repeatable with its data; None if no repeatable has this key."""
        stored = await self._get_broker().read_repeatable(_check_lookup_key(key))
        if stored is None:
            return None
        spec = decode_spec(stored.spec)
        retry = decode_retry(stored.retry) if stored.retry else None
        return Repeatable(_to_meta(spec, stored), decode_data(spec.payload), retry)

    async def remove(self, key: str) -> bool:
        """Removes a repeatable; False if none has this key."""
        return await self._get_broker().remove_pause_or_resume("remove", _check_lookup_key(key))

    async def pause(self, key: str) -> bool:
        """Stops a repeatable from firing until resume(); False if none has this key, or it is paused already."""
        return await self._get_broker().remove_pause_or_resume("pause", _check_lookup_key(key))

    async def resume(self, key: str) -> bool:
        """Lets a paused repeatable fire again, from its next time on; False if none with this key is paused.

        Fires that it missed during the pause are not made up for. Intervals keep their beat.
        """
        stored = await self._get_broker().read_repeatable(_check_lookup_key(key))
        if stored is None or not stored.is_paused:
            return False
        now_ms, spec = await self._get_broker().read_server_time_ms(), decode_spec(stored.spec)
        next_ms = _check_has_fire(spec, find_fire_ms_after_pause(spec, stored.score, now_ms))
        return await self._get_broker().remove_pause_or_resume("resume", key, next_ms, now_ms)

    async def next_fires(self, key: str, n: int = 5) -> list[int]:
        """Returns the next `n` times at which it fires, in ms since 1970, unless it is paused before."""
        check_int("n", n, 0)
        stored = await self._get_broker().read_repeatable(_check_lookup_key(key))
        if stored is None:
            return []
        return list_next_fires(_to_meta(decode_spec(stored.spec), stored), n)


def list_next_fires(meta: RepeatableMeta, n: int) -> list[int]:
    """Returns the next `n` times at which it fires, within its end and its limit, in ms since 1970."""
    left = n if meta.limit is None else min(n, meta.limit - meta.fired)
    times = [meta.next_fire_ms, *next_fires(meta.pattern, n, meta.next_fire_ms)]
    end_ms = float("inf") if meta.end_before_ms is None else meta.end_before_ms
    return [time_ms for time_ms in times if time_ms <= end_ms][: max(left, 0)]


def _has_same_times(stored: StoredRepeatable, spec: RepeatSpec) -> bool:
    try:
        old = decode_spec(stored.spec)
    except DecodeError:
        return False
    return (old.pattern, old.start_after_ms, old.end_before_ms) == (
        spec.pattern,
        spec.start_after_ms,
        spec.end_before_ms,
    )


def _check_has_fire(spec: RepeatSpec, fire_ms: int | None) -> int:
    if fire_ms is None:
        bounds = f"from start_after_ms={spec.start_after_ms} to end_before_ms={spec.end_before_ms}"
        raise InvalidArgument(f"repeatable {spec.key[:200]!r} would never fire: it has no time {bounds}")
    return fire_ms


def _encode_and_check_payload(data: Any) -> bytes:
    payload = encode_data(data)
    if len(payload) > MAX_PAYLOAD_BYTES - 1024:  # leaves room for the envelope of each job
        raise PayloadTooLarge(f"data makes jobs of {len(payload)} bytes, {MAX_PAYLOAD_BYTES - 1024} are allowed")
    return payload


def _check_key_for_storing(key: Any) -> str:
    if key is None:
        return ""
    _check_lookup_key(key)
    if not key.isprintable() or len(key.encode()) > MAX_KEY_BYTES:
        raise InvalidArgument(f"key {key[:100]!r} must be printable, not blank, and at most {MAX_KEY_BYTES} bytes")
    return str(key)


def _check_lookup_key(key: Any) -> str:
    """Checks a key for a lookup. Default keys and keys of other programs may contain any character."""
    if not isinstance(key, str):
        raise InvalidType(f"key must be a str, not {type(key).__name__} {key!r}"[:300])
    try:
        raw = key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidArgument(f"key {key[:100]!r} holds half of a surrogate pair, which UTF-8 cannot hold") from None
    if not raw.strip():
        raise InvalidArgument(f"key {key[:100]!r} must not be blank")
    return key


def _to_meta(spec: RepeatSpec, stored: StoredRepeatable) -> RepeatableMeta:
    return RepeatableMeta(
        key=stored.key,
        job_name=spec.job_name,
        pattern=spec.pattern,
        next_fire_ms=stored.score,
        limit=spec.limit,
        start_after_ms=spec.start_after_ms,
        end_before_ms=spec.end_before_ms,
        missed_fires=None if spec.missed_fires.kind == "skip" else spec.missed_fires,
        fired=stored.fired,
        is_paused=stored.is_paused,
    )
