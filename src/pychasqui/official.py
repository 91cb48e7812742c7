"""The rest of the official package's names, so that its users change one import line.

Producer and Consumer are its low-level pair: bytes in, bytes out. Both stand on Queue and Worker, and so the bytes must
be MessagePack, which is what every worker reads. The Scheduler of `standalone.py` takes the official
arguments as well. What differs beyond that is in docs/reference/differences.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ._core import checks
from ._redis.endpoint import CredentialProvider
from ._redis.keys import Keys
from ._version import __version__
from ._wire.msgpack import decode_data, encode_data
from .errors import DecodeError, InvalidArgument, InvalidType, NotSupportedError
from .job import Job
from .queue import Queue
from .standalone import Scheduler as Scheduler  # was defined here, and stays importable from here
from .worker import Worker


def version() -> str:
    """The version of this package."""
    return __version__


@dataclass(frozen=True, slots=True)
class NativeJob:
    """What a Consumer's handler is given."""

    id: str
    name: str
    payload: bytes
    created_at_ms: int
    attempt: int


class Producer:
    """A Queue whose data is encoded already. `pool_size` has no effect: one connection carries all adds."""

    def __init__(
        self,
        redis_url: str,
        queue_name: str,
        *,
        pool_size: int | None = None,
        max_stream_len: int | None = None,
        max_delay_secs: int | None = None,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        self._queue = Queue(
            queue_name,
            redis_url=redis_url,
            max_stream_len=max_stream_len,
            max_delay_secs=max_delay_secs,
            credential_provider=credential_provider,
        )
        self._keys = Keys(queue_name)

    def stream_key(self) -> str:
        return self._keys.stream

    def delayed_key(self) -> str:
        return self._keys.delayed

    def dlq_key(self) -> str:
        return self._keys.dead

    def producer_id(self) -> str:
        """A name for this object; what keeps adds apart has names of its own."""
        return f"{id(self._queue):x}"

    async def shutdown(self) -> None:
        await self._queue.close()

    async def add(self, payload: bytes) -> str:
        return await self.add_with_options(payload, {})

    async def add_with_options(self, payload: bytes, opts: Mapping[str, Any]) -> str:
        return (await self._queue.add(**_job(payload, opts))).id

    async def add_in(self, delay_ms: int, payload: bytes) -> str:
        return await self.add_in_with_options(delay_ms, payload, {})

    async def add_in_with_options(self, delay_ms: int, payload: bytes, opts: Mapping[str, Any]) -> str:
        return (await self._queue.add(**_job(payload, opts), delay_ms=delay_ms)).id

    async def add_at(self, when_ms: int, payload: bytes) -> str:
        return await self.add_at_with_options(when_ms, payload, {})

    async def add_at_with_options(self, when_ms: int, payload: bytes, opts: Mapping[str, Any]) -> str:
        return (await self._queue.add(**_job(payload, opts), delay_ms=_time(when_ms))).id

    async def add_bulk(self, payloads: Iterable[bytes]) -> list[str]:
        return await self.add_bulk_with_options(payloads, {})

    async def add_bulk_with_options(self, payloads: Iterable[bytes], opts: Mapping[str, Any]) -> list[str]:
        return _ids(await self._queue.add_bulk([_job(payload, opts) for payload in payloads]))

    async def add_bulk_named(self, items: Iterable[tuple[str, bytes]]) -> list[str]:
        return _ids(await self._queue.add_bulk([_job(payload, {"name": name}) for name, payload in items]))

    async def add_in_bulk(self, delay_ms: int, payloads: Iterable[bytes]) -> list[str]:
        jobs = [_job(payload, {}) | {"delay_ms": delay_ms} for payload in payloads]
        return _ids(await self._queue.add_bulk(jobs))

    async def cancel_delayed(self, job_id: str) -> bool:
        return await self._queue.cancel_delayed(job_id)

    async def cancel_delayed_bulk(self, job_ids: Iterable[str]) -> list[bool]:
        return await self._queue.cancel_delayed_bulk(job_ids)

    async def peek_dlq(self, limit: int) -> list[dict[str, Any]]:
        return await self._queue.peek_dlq(limit)

    async def replay_dlq(self, limit: int) -> int:
        return await self._queue.replay_dlq(limit)

    async def upsert_repeatable(self, spec: Mapping[str, Any]) -> str:
        """`spec` has job_name, payload, pattern; perhaps key, limit, start_after_ms, end_before_ms, missed_fires."""
        options = dict(spec)
        name, data = options.pop("job_name"), _data(options.pop("payload"))
        options["key"] = options.get("key") or None  # the official package sends "" for none
        meta = await self._queue.repeatables.upsert(name, data, repeat=options.pop("pattern"), **options)
        return meta.key

    async def list_repeatable(self, limit: int) -> list[dict[str, Any]]:
        optional = ("limit", "start_after_ms", "end_before_ms")
        listed = []
        for meta in await self._queue.repeatables.page(limit):
            one = {"key": meta.key, "job_name": meta.job_name, "next_fire_ms": meta.next_fire_ms}
            one |= {name: value for name in optional if (value := getattr(meta, name)) is not None}
            missed = {} if meta.missed_fires is None else {"missed_fires": meta.missed_fires.to_dict()}
            listed.append(one | {"pattern": meta.pattern.to_dict()} | missed)
        return listed

    async def remove_repeatable_by_key(self, key: str) -> bool:
        return await self._queue.remove_repeatable_by_key(key)

    async def get_result(self, id: str) -> bytes | None:  # noqa: A002  the official name
        return (await self.get_result_bulk([id]))[0]

    async def get_result_bulk(self, ids: Iterable[str]) -> list[bytes | None]:
        wanted = checks.check_job_ids(ids)
        return await self._queue._on_loop().results.results(wanted) if wanted else []


class Consumer:
    """A Worker whose handler gets and returns bytes. Takes the Worker's options, and runs one job at a time unless told
    otherwise."""

    def __init__(self, redis_url: str, queue_name: str, *, concurrency: int = 1, **options: Any) -> None:
        self._handler: Callable[[NativeJob], Awaitable[bytes | None]] | None = None
        self._worker = Worker(queue_name, self._handle, redis_url=redis_url, concurrency=concurrency, **options)

    async def run(self, handler: Callable[[NativeJob], Awaitable[bytes | None]]) -> None:
        """Until shutdown()."""
        self._handler = handler
        await self._worker.run()

    def shutdown(self) -> None:
        """Have run() finish what it runs, and return. Waits for nothing."""
        self._worker.shutdown()

    async def _handle(self, job: Job) -> Any:
        assert self._handler is not None
        payload = encode_data(job.data)
        result = await self._handler(NativeJob(job.id, job.name, payload, job.created_at_ms, job.attempt))
        return None if result is None else _data(result)


def _job(payload: bytes, opts: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of Queue.add from the official options: id, name, retry."""
    if unknown := opts.keys() - {"id", "name", "retry"}:
        raise InvalidArgument(f"opts has no {min(map(repr, unknown))}; its keys are id, name, retry")
    retry = opts.get("retry") or {}
    return {
        "name": opts.get("name") or "",
        "data": _data(payload),
        "job_id": opts.get("id"),
        "attempts": retry.get("max_attempts"),
        "backoff": retry.get("backoff"),
    }


def _data(payload: bytes) -> Any:
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise InvalidType(f"payload must be bytes, not {type(payload).__name__}")
    try:
        return decode_data(bytes(payload))
    except DecodeError as error:
        raise NotSupportedError(f"payload must be MessagePack, which is what workers read: {error}") from None


def _time(when_ms: int) -> datetime:
    return datetime.fromtimestamp(checks.check_int("when_ms", when_ms, 0) / 1000, UTC)


def _ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]
