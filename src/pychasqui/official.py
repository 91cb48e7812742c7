"""The rest of the official package's names, so that its users change one import line.

Producer and Consumer are its low-level pair: they take and give bytes. They use Queue and Worker, so the bytes must be
MessagePack, which every worker reads. The Scheduler of `standalone.py` also takes the official arguments.
docs/reference/differences.md lists what differs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ._core import checks
from ._redis.credentials import CredentialProvider
from ._redis.keys import Keys
from ._version import __version__
from ._wire.msgpack import decode_data, encode_data
from .errors import DecodeError, InvalidArgument, InvalidType, NotSupportedError
from .job import Job
from .queue import Queue
from .standalone import Scheduler as Scheduler  # importable from here as well
from .worker import Worker


def version() -> str:
    """Returns the version of this package."""
    return __version__


@dataclass(frozen=True, slots=True)
class NativeJob:
    """The job that a Consumer passes to its handler."""

    id: str
    name: str
    payload: bytes
    created_at_ms: int
    attempt: int


class Producer:
    """Adds jobs whose data is already encoded. `pool_size` has no effect: one connection carries all adds."""

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
        """Returns the key of the stream of jobs."""
        return self._keys.stream

    def delayed_key(self) -> str:
        """Returns the key of the delayed set."""
        return self._keys.delayed

    def dlq_key(self) -> str:
        """Returns the key of the stream of dead letters."""
        return self._keys.dead

    def producer_id(self) -> str:
        """Returns a name for this object. The ids that make adds idempotent do not use it."""
        return f"{id(self._queue):x}"

    async def shutdown(self) -> None:
        """Closes the connection, after the adds in flight."""
        await self._queue.close()

    async def add(self, payload: bytes) -> str:
        """Adds one job; returns its id."""
        return await self.add_with_options(payload, {})

    async def add_with_options(self, payload: bytes, opts: Mapping[str, Any]) -> str:
        """Adds one job; `opts` may have id, name and retry. Returns the id."""
        return (await self._queue.add(**_make_add_arguments(payload, opts))).id

    async def add_in(self, delay_ms: int, payload: bytes) -> str:
        """Adds a job that runs `delay_ms` later; returns its id."""
        return await self.add_in_with_options(delay_ms, payload, {})

    async def add_in_with_options(self, delay_ms: int, payload: bytes, opts: Mapping[str, Any]) -> str:
        """Adds a job that runs `delay_ms` later; `opts` as in add_with_options()."""
        return (await self._queue.add(**_make_add_arguments(payload, opts), delay_ms=delay_ms)).id

    async def add_at(self, when_ms: int, payload: bytes) -> str:
        """Adds a job that runs at a time in ms since 1970; returns its id."""
        return await self.add_at_with_options(when_ms, payload, {})

    async def add_at_with_options(self, when_ms: int, payload: bytes, opts: Mapping[str, Any]) -> str:
        """Adds a job that runs at a time in ms since 1970; `opts` as in add_with_options()."""
        return (await self._queue.add(**_make_add_arguments(payload, opts), delay_ms=_to_datetime(when_ms))).id

    async def add_bulk(self, payloads: Iterable[bytes]) -> list[str]:
        """Adds many jobs in few commands; returns their ids."""
        return await self.add_bulk_with_options(payloads, {})

    async def add_bulk_with_options(self, payloads: Iterable[bytes], opts: Mapping[str, Any]) -> list[str]:
        """Adds many jobs with the same `opts`; returns their ids."""
        return _list_job_ids(await self._queue.add_bulk([_make_add_arguments(payload, opts) for payload in payloads]))

    async def add_bulk_named(self, items: Iterable[tuple[str, bytes]]) -> list[str]:
        """Adds many jobs, each given as (name, payload); returns their ids."""
        return _list_job_ids(
            await self._queue.add_bulk([_make_add_arguments(payload, {"name": name}) for name, payload in items])
        )

    async def add_in_bulk(self, delay_ms: int, payloads: Iterable[bytes]) -> list[str]:
        """Adds many jobs that run `delay_ms` later; returns their ids."""
        jobs = [_make_add_arguments(payload, {}) | {"delay_ms": delay_ms} for payload in payloads]
        return _list_job_ids(await self._queue.add_bulk(jobs))

    async def cancel_delayed(self, job_id: str) -> bool:
        """Removes a delayed job; False if it is not delayed any more."""
        return await self._queue.cancel_delayed(job_id)

    async def cancel_delayed_bulk(self, job_ids: Iterable[str]) -> list[bool]:
        """Removes delayed jobs; returns for each id whether it was removed."""
        return await self._queue.cancel_delayed_bulk(job_ids)

    async def peek_dlq(self, limit: int) -> list[dict[str, Any]]:
        """Returns up to `limit` dead letters as mappings."""
        return await self._queue.peek_dlq(limit)

    async def replay_dlq(self, limit: int) -> int:
        """Adds up to `limit` dead jobs to the queue again; returns how many."""
        return await self._queue.replay_dlq(limit)

    async def upsert_repeatable(self, spec: Mapping[str, Any]) -> str:
        """Stores a repeatable and returns its key.

        `spec` has job_name, payload and pattern; optional are key, limit, start_after_ms, end_before_ms, missed_fires.
        """
        options = dict(spec)
        name, data = options.pop("job_name"), _decode_payload(options.pop("payload"))
        options["key"] = options.get("key") or None  # the official package sends "" for none
        meta = await self._queue.repeatables.upsert(name, data, repeat=options.pop("pattern"), **options)
        return meta.key

    async def list_repeatable(self, limit: int) -> list[dict[str, Any]]:
        """Returns up to `limit` repeatables as mappings."""
        optional = ("limit", "start_after_ms", "end_before_ms")
        listed = []
        for meta in await self._queue.repeatables.page(limit):
            one = {"key": meta.key, "job_name": meta.job_name, "next_fire_ms": meta.next_fire_ms}
            one |= {name: value for name in optional if (value := getattr(meta, name)) is not None}
            missed = {} if meta.missed_fires is None else {"missed_fires": meta.missed_fires.to_dict()}
            listed.append(one | {"pattern": meta.pattern.to_dict()} | missed)
        return listed

    async def remove_repeatable_by_key(self, key: str) -> bool:
        """Removes a repeatable; False if none has this key."""
        return await self._queue.remove_repeatable_by_key(key)

    async def get_result(self, id: str) -> bytes | None:  # noqa: A002  the official name
        """Returns the encoded result of a job; None if there is none."""
        return (await self.get_result_bulk([id]))[0]

    async def get_result_bulk(self, ids: Iterable[str]) -> list[bytes | None]:
        """Returns the encoded result of each job; None where there is none."""
        wanted = checks.check_job_ids(ids)
        return await self._queue._get_or_open_loop_session().results.read_results(wanted) if wanted else []


class Consumer:
    """Runs jobs with a handler that takes and returns bytes.

    It takes the options of Worker. By default it runs one job at a time.
    """

    def __init__(self, redis_url: str, queue_name: str, *, concurrency: int = 1, **options: Any) -> None:
        self._handler: Callable[[NativeJob], Awaitable[bytes | None]] | None = None
        self._worker = Worker(
            queue_name, self._run_native_handler, redis_url=redis_url, concurrency=concurrency, **options
        )

    async def run(self, handler: Callable[[NativeJob], Awaitable[bytes | None]]) -> None:
        """Runs jobs until shutdown()."""
        self._handler = handler
        await self._worker.run()

    def shutdown(self) -> None:
        """Makes run() finish the running jobs and return. Does not wait for it."""
        self._worker.shutdown()

    async def _run_native_handler(self, job: Job) -> Any:
        assert self._handler is not None
        payload = encode_data(job.data)
        result = await self._handler(NativeJob(job.id, job.name, payload, job.created_at_ms, job.attempt))
        return None if result is None else _decode_payload(result)


def _make_add_arguments(payload: bytes, opts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of Queue.add for the official options id, name and retry."""
    if unknown := opts.keys() - {"id", "name", "retry"}:
        raise InvalidArgument(f"opts has no {min(map(repr, unknown))}; its keys are id, name, retry")
    retry = opts.get("retry") or {}
    return {
        "name": opts.get("name") or "",
        "data": _decode_payload(payload),
        "job_id": opts.get("id"),
        "attempts": retry.get("max_attempts"),
        "backoff": retry.get("backoff"),
    }


def _decode_payload(payload: bytes) -> Any:
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise InvalidType(f"payload must be bytes, not {type(payload).__name__}")
    try:
        return decode_data(bytes(payload))
    except DecodeError as error:
        raise NotSupportedError(f"payload must be MessagePack, because workers decode it: {error}") from None


def _to_datetime(when_ms: int) -> datetime:
    return datetime.fromtimestamp(checks.check_int("when_ms", when_ms, 0) / 1000, UTC)


def _list_job_ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]
