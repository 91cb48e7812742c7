"""Queue: adds jobs to a queue, and looks after the jobs that are in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack
from weakref import proxy

from ._core import checks
from ._core.cached_property import cached_property
from ._core.config import take_config_fields_as_arguments
from ._core.options import JobOptions, refuse_options_beside_repeat
from ._core.retry_options import RetryOverride
from ._producer.cancel_and_reschedule import CancelAndReschedule
from ._producer.config import QueueConfig
from ._producer.encoder import Encoder
from ._producer.official_names import OfficialNames
from ._producer.pause_and_purge import PauseAndPurge
from ._producer.session import QueueSession, schedule_close_if_loop_is_open
from ._redis.connector import Connector
from ._redis.keys import Keys
from .errors import Closed, InvalidArgument, RedisTrouble, WrongLoop
from .job import Job
from .metrics import GuardedSinks
from .settings import find_settings_not_given

if TYPE_CHECKING:
    from ._core.repeat_pattern import MissedFiresPolicy, RepeatPattern
    from ._redis.inspector import Counts
    from ._redis.results import LogLine
    from .cancellation import JobCanceller
    from .dlq import DeadLetters
    from .inspector import Inspector, JobView, Page, State, WorkerInfo
    from .job_status import JobStatus
    from .repeatables import Repeatables
    from .results import ReplayedJobs, Results

EVENTS_TIMEOUT_S = 7.0  # longer than a read of events blocks


class Queue(OfficialNames, CancelAndReschedule, PauseAndPurge):
    """Adds jobs to one queue, and looks after them. Belongs to the event loop it is first used on.

    name                  the queue's name, the same for everybody who adds or runs its jobs
    redis_url             redis://, rediss:// (TLS), unix://, embedded://, redis+sentinel:// or redis+cluster://
    tls                   use TLS although the URL says redis://
    max_stream_len        how many jobs may wait or run: past it an add raises QueueFull. Nothing is ever trimmed
    max_delay_secs        how far in the future a job may be due; 0 lifts the bound
    max_payload_bytes     how large one encoded job may be; the official consumers take 1 MiB
    timeout_s             an add succeeds or raises within this time, also while Redis is away
    credential_provider   a function, or an object with get_credentials(): asked for user name and password before each
                          connection is made
    metrics               a sink that receives a record of the jobs that are added, as PrometheusSink; see MetricsSink
    tracing               "auto" traces adds if OpenTelemetry has a provider; "off"; or an OpenTelemetry of your own
    """

    @take_config_fields_as_arguments(QueueConfig, find_settings_not_given)
    def __init__(self, config: QueueConfig) -> None:
        self._config = config
        self._encoder = Encoder(config.max_payload_bytes, 1000 * config.max_delay_secs)
        self._connector = Connector(
            config.redis_url,
            tls=config.tls,
            client_name=f"chasqui-queue-{config.name}",
            credential_provider=config.credential_provider,
        )
        self._record_metric = None if config.metrics is None else GuardedSinks([config.metrics]).record
        self._session: QueueSession | None = None
        self._results: Results | None = None
        self._replayed: ReplayedJobs | None = None
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def redis_address(self) -> str:
        """Where Redis is: the URL without its password."""
        return str(self._connector)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def dlq(self) -> DeadLetters:
        """The queue's dead letters."""
        return self._dead_letters

    @property
    def repeatables(self) -> Repeatables:
        """The queue's repeatables."""
        return self._stored_repeatables

    # Parts that few processes need are imported when they are first used: one that only adds starts sooner.

    @cached_property
    def _dead_letters(self) -> DeadLetters:
        from .dlq import DeadLetters

        return DeadLetters(lambda: self._get_or_open_loop_session().dlq, self._try_to_remember_jobs_before_replay)

    @cached_property
    def _stored_repeatables(self) -> Repeatables:
        from .repeatables import Repeatables

        return Repeatables(lambda: self._get_or_open_loop_session().repeatables)

    @cached_property
    def _inspector(self) -> Inspector:
        from .inspector import Inspector

        return Inspector(lambda: self._get_or_open_loop_session().inspector)

    def _make_canceller(self) -> JobCanceller:
        from .cancellation import JobCanceller

        return JobCanceller(self._get_or_open_loop_session, self._record_metric)

    # Adding ---------------------------------------------------------------------------------------------------------

    async def add(
        self,
        name: str,
        data: Any = None,
        *,
        job_id: str | None = None,
        repeat: RepeatPattern | dict[str, Any] | None = None,
        missed_fires: MissedFiresPolicy | dict[str, Any] | None = None,
        wait_replicas: int = 0,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Adds one job; returns when Redis has it, and `wait_replicas` of its replicas.

        job_id                there is one job of this id until it is done; a second add changes nothing, and `is_new`
                              of the returned job is False
        delay_ms              run it this many ms later, or at a time (a datetime; a naive one is UTC), by the server's
                              clock
        delay                 run it that much later
        attempts              how many runs it has in all, instead of the worker's max_attempts
        backoff               the delays between its runs, instead of the worker's: ms, a BackoffSpec or a mapping of
                              its fields
        timeout               how long each of its runs may take, instead of the worker's time: then its handler is
                              cancelled, a thread asked to stop, and the run has failed
        expires_in            how long it may wait for its start, by the server's clock: then it is not run any more,
                              and dead
        unique_for            with job_id: for how long (ms or timedelta) there is one job of this id, instead of until
                              it is done
        if_exists             with job_id: what a second add does to a first job that still waits: "keep" it, "replace"
                              its data, or "postpone" it, which replaces its data and its time
        repeat                store a repeatable instead, see `repeatables.upsert`; missed_fires goes with it
        """
        sender = self._get_or_open_loop_session().sender
        if repeat is not None or missed_fires is not None:
            refuse_options_beside_repeat(repeat, job_id, wait_replicas, options)
            assert repeat is not None
            attempts, backoff = options.get("attempts"), options.get("backoff")
            return await self.upsert_repeatable_job(
                name, data, repeat=repeat, attempts=attempts, backoff=backoff, missed_fires=missed_fires
            )
        if wait_replicas:
            checks.check_int("wait_replicas", wait_replicas, 0)
        encoded = self._encoder.check_and_encode(name, data, job_id, options)
        return await sender.await_added_job(sender.send_one(encoded, wait_replicas), encoded, name, data)

    async def add_bulk(self, jobs: Iterable[Mapping[str, Any]], *, wait_replicas: int = 0) -> list[Job]:
        """Adds many jobs, each a mapping of add()'s arguments. If one cannot be encoded, none is sent.

        They travel in batches of at most 1,000. QueueFull means that none was added; AddUnknown names in `job_ids`
        those that may not have been.
        """
        sender = self._get_or_open_loop_session().sender
        checks.check_int("wait_replicas", wait_replicas, 0)
        checks.check_is_iterable("jobs", jobs, "of mappings with add()'s arguments")
        given = list(jobs)  # the caller's list may change while several batches are sent
        return await sender.add_bulk(self._encoder.check_and_encode_all(given), given, wait_replicas)

    async def fire_now(self, key: str) -> Job:
        """Adds a job of a repeatable at once, beside its schedule and not counted as one of its fires."""
        found = await self.repeatables.get(key)
        if found is None:
            raise InvalidArgument(f"there is no repeatable {key[:200]!r}")
        own = found.retry or RetryOverride()
        return await self.add(found.meta.job_name, found.data, attempts=own.max_attempts, backoff=own.backoff)

    # Results --------------------------------------------------------------------------------------------------------

    async def get_job_result(self, job_id: str) -> Any:
        """Returns what the job's handler returned; None if it is not done, or nothing is stored."""
        return (await self.get_job_result_bulk([job_id]))[0]

    async def get_job_result_bulk(self, job_ids: Iterable[str]) -> list[Any]:
        """Returns the results of many jobs, in the order of the ids."""
        ids = checks.check_job_ids(job_ids)
        from .results import decode_results

        return decode_results(await self._get_or_open_loop_session().results.read_results(ids)) if ids else []

    async def get_job_progress(self, job_id: str) -> int | None:
        """Returns the progress that the job's handler reported last, in per cent; None if it reported none."""
        return await self._get_or_open_loop_session().results.read_progress(checks.check_job_id_of_lookup(job_id))

    async def get_job_logs(self, job_id: str, *, limit: int = 100) -> list[str]:
        """Returns the last lines that the job's handler logged with job.log(), oldest first."""
        return await self._get_or_open_loop_session().results.read_last_log_lines(
            checks.check_job_id_of_lookup(job_id), checks.check_int("limit", limit, 1)
        )

    async def read_job_log(self, job_id: str, *, after: str = "", limit: int = 100) -> list[LogLine]:
        """Returns the first lines of a job's log behind the line with the id `after`, to follow a log as it grows."""
        from .inspector import check_page_position

        checked = checks.check_job_id_of_lookup(job_id), check_page_position(after), checks.check_int("limit", limit, 1)
        return await self._get_or_open_loop_session().results.read_log_lines_after(*checked)

    async def wait_for_result(self, job_id: str, *, timeout: float = 30.0) -> Any:  # noqa: ASYNC109  the official name
        """Waits for what the job's handler returns.

        Raises JobFailed as soon as the job is dead, JobCancelled if it was cancelled, ResultExpired or ResultNotStored
        if it is done without a result that is still there, and TimeoutError, which says where the job is and whether
        any worker lives.
        """
        timeout_s = checks.check_seconds("timeout", timeout)
        self._get_or_open_loop_session()
        if self._results is None:
            from ._redis.events import EventsBroker
            from .events import QueueEvents
            from .inspector import Inspector
            from .results import ReplayedJobs, Results

            self._replayed = self._replayed or ReplayedJobs()
            keys, queue = Keys(self.name), proxy(self)  # tasks of the Results must not keep a queue that is dropped
            events = EventsBroker(self._connector.make_broker(keys, timeout_s=EVENTS_TIMEOUT_S), keys)
            self._results = Results(
                lambda: queue._get_or_open_loop_session().results,
                lambda: queue._get_or_open_loop_session().events,
                QueueEvents.from_broker(events, self.name),
                Inspector(lambda: queue._get_or_open_loop_session().inspector),
                self._replayed,
            )
        return await self._results.wait(checks.check_job_id_of_lookup(job_id), timeout_s)

    async def wait_for_results(self, job_ids: Iterable[str], *, timeout: float = 30.0) -> list[Any]:  # noqa: ASYNC109
        """Waits for the results of many jobs, in the order of the ids. Raises the first error of one of them."""
        waits = [self.wait_for_result(job_id, timeout=timeout) for job_id in checks.check_job_ids(job_ids)]
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _try_to_remember_jobs_before_replay(self, job_ids: Iterable[str]) -> None:
        from .results import ReplayedJobs

        self._replayed = self._replayed or ReplayedJobs()
        with suppress(RedisTrouble):  # a user without the right to read events waits for no results
            self._replayed.add(job_ids, await self._get_or_open_loop_session().events.read_newest_event_id())

    # Inspecting -----------------------------------------------------------------------------------------------------

    async def counts(self) -> Counts:
        """Counts the jobs that are waiting, active, delayed and dead, and the repeatables."""
        return await self._inspector.counts()

    async def jobs(self, state: State, *, after: str = "", limit: int = 100) -> Page:
        """Returns a page of the jobs of one state: "waiting", "active", "delayed" or "dead"."""
        return await self._inspector.jobs(state, after, limit)

    async def get_job(self, job_id: str) -> JobView | None:
        """Finds a job and its state. One without an explicit id is looked for among the first 1,000 of each state."""
        return await self._inspector.get_job(job_id)

    async def status(self, job_id: str) -> JobStatus:
        """Says where a job is and what is known about it, in a few milliseconds however many jobs there are.

        Its state is "waiting", "running", "delayed", "retrying", "dead", "done", "cancelled" or "unknown".
        """
        from .job_status import JobStatusFinder

        return await JobStatusFinder(self._get_or_open_loop_session).find(job_id)

    async def workers(self) -> list[WorkerInfo]:
        """Lists the living workers as their heartbeats describe them: host, pid, concurrency, the jobs they run."""
        return await self._inspector.workers()

    async def oldest_age_ms(self) -> int | None:
        """Returns how long ago the oldest job that is not done came into the stream; None if there is none."""
        return await self._inspector.oldest_age_ms()

    # From its first use to its close --------------------------------------------------------------------------------

    def _get_or_open_loop_session(self) -> QueueSession:
        """The session of the running loop. Only one loop may use a queue; when it has ended, the next one may."""
        session, loop = self._session, asyncio.get_running_loop()
        if self._is_closed:
            raise Closed(f"queue {self.name!r} is closed; make a new one")
        if session is not None and session.loop is loop:
            return session
        if session is not None and not session.loop.is_closed():
            raise WrongLoop(f"queue {self.name!r} belongs to another event loop; make one per loop, or a SyncQueue")
        self._results = None
        own = (self._config, self._connector, self._encoder)
        self._session = QueueSession(*own, record_metric=self._record_metric, queue=self)
        return self._session

    async def close(self) -> None:
        """Waits for adds that are in flight, then closes the connections.

        Every call waits for that. A caller that is cancelled does not end it.
        """
        self._is_closed = True
        if self._closing is None or self._closing.cancelled():
            self._closing = asyncio.create_task(self._wait_for_adds_and_close_connections(), name="chasqui close")
        if self._closing.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({self._closing})
            self._closing.result()

    async def _wait_for_adds_and_close_connections(self) -> None:
        if self._session is not None and self._session.loop is asyncio.get_running_loop():
            if self._results is not None:
                await self._results.close()
            await self._session.close()
        self._connector.leave_embedded_server_and_stop_logging()

    async def __aenter__(self) -> Self:
        self._get_or_open_loop_session()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        """It was collected as garbage: the tasks that wait for results end, and their connection."""
        results = getattr(self, "_results", None)  # none if the constructor has raised
        if results is not None and self._session is not None and not self._is_closed:
            schedule_close_if_loop_is_open(self._session.loop, results.close)

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, redis_url='{self._connector}')"
