"""Queue: puts jobs into a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from ._core import checks, defaults
from ._core.config import takes_fields_of
from ._core.options import IfExists, read_delay
from ._producer.config import QueueConfig
from ._producer.encoder import Backoff, Delay, Encoder
from ._producer.sender import Sender
from ._redis.broker import Broker
from ._redis.connector import Connector
from ._redis.dlq import DlqBroker
from ._redis.inspector import Counts, InspectorBroker
from ._redis.keys import Keys
from ._redis.repeatables import RepeatablesBroker
from ._redis.results import ResultsBroker
from .dlq import DeadLetters
from .errors import Closed, InvalidArgument, WrongLoop
from .events import QueueEvents
from .inspector import Inspector, JobView, Page, State, WorkerInfo
from .job import Job
from .metrics import GuardedSinks
from .repeatables import RepeatableMeta, Repeatables
from .results import Results, decode_results
from .schedule import MissedFiresPolicy, RepeatPattern
from .tracing import SpanOrigin, find_tracing

MOVED_A_CALL = 500


class Queue:
    """Adds jobs to one queue, and looks after them. Belongs to the event loop it is first used on.

    name                  the queue's name, the same for everybody who adds or runs its jobs
    redis_url             redis://, rediss:// (TLS), unix:// or embedded://
    tls                   use TLS although the URL says redis://
    max_stream_len        how many jobs may wait or run: past it an add raises QueueFull. Nothing is ever trimmed
    max_delay_secs        how far in the future a job may be due; 0 lifts the bound
    max_payload_bytes     how large one encoded job may be; the official consumers take 1 MiB
    timeout_s             an add succeeds or raises within this time, also while Redis is away
    credential_provider   asked for user name and password before each connection is made
    metrics               a sink that receives a record of the jobs that are added, as PrometheusSink; see MetricsSink
    tracing               "auto" traces adds if OpenTelemetry has a provider; "off"; or an OpenTelemetry of your own
    """

    @takes_fields_of(QueueConfig)
    def __init__(self, config: QueueConfig) -> None:
        self._config = config
        self._encoder = Encoder(config.max_payload_bytes, 1000 * config.max_delay_secs)
        self._connector = Connector(
            config.redis_url,
            tls=config.tls,
            client_name=f"chasqui-queue-{config.name}",
            credential_provider=config.credential_provider,
        )
        self._tell = None if config.metrics is None else GuardedSinks([config.metrics]).tell
        self._loop: asyncio.AbstractEventLoop | None = None
        self._results: Results | None = None
        self._is_closed = False

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def add(
        self,
        name: str,
        data: Any = None,
        *,
        delay_ms: Delay | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        job_id: str | None = None,
        unique_for: int | timedelta | None = None,
        if_exists: IfExists | None = None,
        repeat: RepeatPattern | dict[str, Any] | None = None,
        missed_fires: MissedFiresPolicy | dict[str, Any] | None = None,
        wait_replicas: int = 0,
    ) -> Job:
        """Add one job; returns when Redis has it, and so many of its replicas.

        delay_ms, delay     run it so much later (ms, timedelta) or at a time (datetime; naive ones are UTC), by the
                            server's clock
        attempts, backoff   override the worker's retry policy
        job_id              there is one job of this id until it is done; a second add changes nothing, and the returned
                            job says so: `is_new` is False
        unique_for          instead of until it is done, for so long (ms or timedelta)
        if_exists           what a second add does to a first that still waits: "keep" it, "replace" its data, or
                            "postpone" it: replace its data and its time
        repeat              store a repeatable instead, see upsert_repeatable_job(); missed_fires goes with it
        """
        sender = self._bound_sender()
        if repeat is not None or missed_fires is not None:
            given = {"delay_ms": delay_ms, "delay": delay, "job_id": job_id, "unique_for": unique_for}
            _refuse_beside_repeat(repeat, given | {"if_exists": if_exists, "wait_replicas": wait_replicas or None})
            assert repeat is not None
            return await self.upsert_repeatable_job(
                name, data, repeat=repeat, attempts=attempts, backoff=backoff, missed_fires=missed_fires
            )
        if wait_replicas:
            checks.check_int("wait_replicas", wait_replicas, 0)
        encoded = self._encoder.encode(
            name,
            data,
            delay_ms=delay_ms,
            delay=delay,
            attempts=attempts,
            backoff=backoff,
            job_id=job_id,
            unique_for=unique_for,
            if_exists=if_exists,
        )
        return await sender.arrived(sender.send(encoded, wait_replicas), encoded, name, data)

    async def add_unique(self, name: str, data: Any = None, *, job_id: str, **options: Any) -> Job:
        """add() with an id that must be given."""
        return await self.add(name, data, job_id=checks.check_new_job_id(job_id), **options)

    async def add_bulk(self, jobs: Iterable[Mapping[str, Any]], *, wait_replicas: int = 0) -> list[Job]:
        """Add many jobs, each a mapping of add()'s arguments. If one cannot be encoded, none is sent.

        They travel in batches of at most 1,000. QueueFull means that none was added; AddUnknown names in `job_ids`
        those that may not have been.
        """
        sender = self._bound_sender()
        checks.check_int("wait_replicas", wait_replicas, 0)
        given = jobs if isinstance(jobs, list) else list(jobs)
        return await sender.send_all(self._encoder.encode_all(given), given, wait_replicas)

    async def cancel_delayed(self, job_id: str) -> bool:
        """Take a delayed job, or one that waits for its next try, back. True: it will never start."""
        return (await self.cancel_delayed_bulk([job_id]))[0]

    async def cancel_delayed_bulk(self, job_ids: Iterable[str]) -> list[bool]:
        """The same for many, in the order of the ids."""
        return await self._move_delayed("cancel", checks.check_job_ids(job_ids))

    async def reschedule(self, job_id: str, delay: int | timedelta) -> bool:
        """Have a delayed job run so long from now (ms or timedelta) instead. False if it is not delayed any more."""
        delay_ms = read_delay("delay", delay, self._encoder.max_delay_ms)
        return (await self._move_delayed("postpone", [job_id], delay_ms))[0]

    async def run_now(self, job_id: str) -> bool:
        """Have a delayed job run at once. False if it is not delayed any more."""
        return (await self._move_delayed("run", [job_id]))[0]

    async def _move_delayed(self, what: str, job_ids: list[str], delay_ms: int = 0) -> list[bool]:
        ids = [checks.check_job_id(job_id) for job_id in job_ids]
        broker = self._bound_broker()
        found: list[bool] = []
        for start in range(0, len(ids), MOVED_A_CALL):
            found += await broker.move_delayed(what, ids[start : start + MOVED_A_CALL], delay_ms)
        return found

    # Results --------------------------------------------------------------------------------------------------------

    async def get_job_result(self, job_id: str) -> Any:
        """What the job's handler returned; None if it is not done, or nothing is stored."""
        return (await self.get_job_result_bulk([job_id]))[0]

    async def get_job_result_bulk(self, job_ids: Iterable[str]) -> list[Any]:
        """The same for many, in the order of the ids."""
        ids = checks.check_job_ids(job_ids)
        return decode_results(await self._reports().results(ids)) if ids else []

    async def get_job_progress(self, job_id: str) -> int | None:
        """How far the job's handler has said to be, in per cent; None if it has not."""
        return await self._reports().progress_of(checks.check_job_id(job_id))

    async def get_job_logs(self, job_id: str, *, limit: int = 100) -> list[str]:
        """The last lines that the job's handler has logged, oldest first."""
        return await self._reports().log_of(checks.check_job_id(job_id), checks.check_int("limit", limit, 1))

    async def wait_for_result(self, job_id: str, *, timeout: float = 30.0) -> Any:  # noqa: ASYNC109  the official name
        """What the job's handler returns, as soon as it does.

        Raises JobFailed as soon as the job is dead, ResultExpired or ResultNotStored if it is done without a result
        that is still there, and TimeoutError, which says where the job is and whether any worker lives.
        """
        timeout_s = checks.check_seconds("timeout", timeout)
        self._bind_to_loop()
        if self._results is None:
            events = QueueEvents.over(self._connector.connection(timeout_s=7.0), self.name)
            self._results = Results(self._reports, events, self._look)
        return await self._results.wait(checks.check_job_id(job_id), timeout_s)

    async def wait_for_results(self, job_ids: Iterable[str], *, timeout: float = 30.0) -> list[Any]:  # noqa: ASYNC109
        """The results of many jobs, in the order of the ids. An error of one is raised when it is known."""
        ids = checks.check_job_ids(job_ids)
        waits = [asyncio.ensure_future(self.wait_for_result(job_id, timeout=timeout)) for job_id in ids]
        try:
            return list(await asyncio.gather(*waits))
        finally:
            for wait in waits:
                wait.cancel()

    def _reports(self) -> ResultsBroker:
        return ResultsBroker(self._bound_broker().connection, Keys(self.name))

    # A look inside --------------------------------------------------------------------------------------------------

    async def counts(self) -> Counts:
        """How many jobs are waiting, active, delayed and dead, and how many repeatables there are."""
        return await self._look.counts()

    async def jobs(self, state: State, *, after: str = "", limit: int = 100) -> Page:
        """A page of the jobs of one state: "waiting", "active", "delayed" or "dead"."""
        return await self._look.jobs(state, after, limit)

    async def get_job(self, job_id: str) -> JobView | None:
        """A job and its state. Those without an explicit id are looked for among the first 1,000 of each state."""
        return await self._look.get_job(job_id)

    async def workers(self) -> list[WorkerInfo]:
        """The workers that live, as their heartbeats tell: host, pid, concurrency, what they run."""
        return await self._look.workers()

    async def oldest_age_ms(self) -> int | None:
        """How long ago the oldest job that is not done came into the stream; None if there is none."""
        return await self._look.oldest_age_ms()

    async def pause(self) -> None:
        """Workers read nothing more from now on; what they have they finish. Adding goes on."""
        await self._inspector_broker().pause()

    async def resume(self) -> None:
        await self._inspector_broker().resume()

    async def is_paused(self) -> bool:
        return await self._inspector_broker().is_paused()

    async def purge(self, state: State) -> int:
        """Remove the jobs of a state for good: "waiting", "delayed" or "dead". Returns how many."""
        if state == "waiting":
            return await self._inspector_broker().purge_waiting()
        if state == "delayed":
            return await self._inspector_broker().purge_delayed()
        if state == "dead":
            return await self.dlq.purge()
        raise InvalidArgument(
            f"state is {state!r}, must be waiting, delayed or dead: what runs cannot be removed"[:300]
        )

    async def drain(self, *, delayed: bool = False) -> int:
        """Remove the waiting jobs and, if asked for, the delayed ones. Returns how many."""
        checks.check_bool("delayed", delayed)
        removed = await self.purge("waiting")
        return removed + (await self.purge("delayed") if delayed else 0)

    async def obliterate(self) -> int:
        """Remove everything that the queue has in Redis, jobs that run, too. Returns how many keys there were.

        A consumer group that consumers are in stays, so that official workers read on: they do not make it again.
        """
        return await self._inspector_broker().remove_all_keys()

    @property
    def _look(self) -> Inspector:
        return Inspector(self._inspector_broker)

    def _inspector_broker(self) -> InspectorBroker:
        return InspectorBroker(self._bound_broker(), Keys(self.name), defaults.GROUP)

    @property
    def repeatables(self) -> Repeatables:
        """The queue's repeatables."""
        return Repeatables(lambda: RepeatablesBroker(self._bound_broker(), Keys(self.name)))

    async def upsert_repeatable_job(
        self,
        name: str,
        data: Any = None,
        *,
        repeat: RepeatPattern | dict[str, Any],
        job_id: str | None = None,
        **options: Any,
    ) -> Job:
        """`repeatables.upsert` in the official package's shape: the returned job's id is the repeatable's key."""
        if job_id is not None:
            raise InvalidArgument(
                "job_id contradicts repeat: each fire is a job of its own; `key` names the repeatable"
            )
        meta = await self.repeatables.upsert(name, data, repeat=repeat, **options)
        return Job(meta.key, name, data)

    async def get_repeatable_jobs(self, limit: int = 100) -> list[RepeatableMeta]:
        """The repeatables that fire next."""
        return await self.repeatables.page(limit)

    async def remove_repeatable_by_key(self, key: str) -> bool:
        """False if there was none of that key."""
        return await self.repeatables.remove(key)

    async def fire_now(self, key: str) -> Job:
        """Add a job of a repeatable at once, beside its schedule and not counted as one of its fires."""
        found = await self.repeatables.get(key)
        if found is None:
            raise InvalidArgument(f"there is no repeatable {key[:200]!r}")
        attempts = found.retry.max_attempts if found.retry is not None else None
        backoff = found.retry.backoff if found.retry is not None else None
        return await self.add(found.meta.job_name, found.data, attempts=attempts, backoff=backoff)

    @property
    def dlq(self) -> DeadLetters:
        """The queue's dead letters."""
        return DeadLetters(lambda: DlqBroker(self._bound_broker(), Keys(self.name)), self._forget_ends)

    def _forget_ends(self, job_ids: Iterable[str]) -> None:
        if self._results is not None:
            self._results.forget(job_ids)

    async def peek_dlq(self, limit: int = 20) -> list[dict[str, Any]]:
        """The oldest dead letters in the official package's shape; `dlq` shows more of them."""
        printable = ("dlq_id", "source_id", "reason", "detail", "payload", "name")
        return [{key: getattr(job, key) for key in printable} for job in await self.dlq.page(limit=limit)]

    async def replay_dlq(self, limit: int = 100) -> int:
        """Bring the oldest dead jobs back, `limit` at the most; returns how many. `dlq.replay` can choose."""
        return await self.dlq.replay(limit=limit)

    async def close(self) -> None:
        """Wait for adds that are on their way, then let go of the connection. Safe twice."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._loop is asyncio.get_running_loop():
            if self._results is not None:
                await self._results.close()
            await self._sender.close()
            await self._connection.close()
            await self._waiting_connection.close()
        self._connector.leave()

    async def __aenter__(self) -> Self:
        self._bind_to_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, redis_url='{self._connector}')"

    def _bound_sender(self) -> Sender:
        self._bind_to_loop()
        return self._sender

    def _bound_broker(self) -> Broker:
        self._bind_to_loop()
        return self._broker

    def _bind_to_loop(self) -> None:
        """Only its own loop may use a queue. After that loop has ended a queue starts over on the next."""
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise Closed(f"queue {self.name!r} is closed; make a new one")
        if loop is not self._loop:
            if self._loop is not None and not self._loop.is_closed():
                raise WrongLoop(f"queue {self.name!r} belongs to another event loop; make one per loop")
            # Not before: a ledger that was named before a fork would be shared by all children.
            self._start_over()
            self._loop = loop

    def _start_over(self) -> None:
        keys = Keys(self.name)
        self._connection = self._connector.connection(timeout_s=self._config.timeout_s)
        self._waiting_connection = self._connector.connection(
            timeout_s=self._config.timeout_s
        )  # opened when replicas are awaited
        self._broker = Broker(self._connection, keys)
        self._results = None
        self._sender = Sender(
            self._broker,
            Broker(self._waiting_connection, keys),
            self._encoder,
            max_stream_len=self._config.max_stream_len or 0,
            timeout_s=self._config.timeout_s,
            tell=self._tell,
            tracing=find_tracing(self._config.tracing),
            scene=SpanOrigin(self.name, self._connector.server),
            queue=self,
        )


def _refuse_beside_repeat(repeat: object, given: Mapping[str, object]) -> None:
    if repeat is None:
        raise InvalidArgument("missed_fires says what a repeatable does: give repeat, too")
    for option, value in given.items():
        if value is not None:
            raise InvalidArgument(f"{option} contradicts repeat: a repeatable has its own times and ids")
