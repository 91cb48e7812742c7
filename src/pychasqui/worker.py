"""Worker: starts the parts, drains and stops them in order. `_worker/wiring.py` puts them together."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid4

from ._core import checks, defaults, limits
from ._core.delivery import Delivery
from ._redis.broker import Broker
from ._redis.connector import Connector
from ._redis.endpoint import CredentialProvider
from ._redis.error_actions import ErrorAction, action_for
from ._worker.drain_log import fate_of_coroutines, fate_of_threads, tell_what_is_cut_off, tell_what_runs
from ._worker.handlers import Handler, check_handler, is_async
from ._worker.lanes import CLEANUP_S, Lanes
from ._worker.lifecycle import Lifecycle
from ._worker.service import Outage
from ._worker.wiring import Components, Settings
from .errors import CommandTimeout, ConnectionLost, ConsumerInUse, RedisTrouble, ReplyError, UnsafeServer
from .metrics import MetricsSink
from .retry import MAX_U32, RetryPolicy
from .tracing import TracingOption, check_tracing

log = logging.getLogger("chasqui.worker")
T = TypeVar("T")

COUNT_A_CALL = 500
NAME_LOOK_S = 0.1
SETTLE_S = 5.0  # how long a closing worker tries to settle what has ended while Redis is away
SECOND_SIGNAL_S = 0.2  # a signal that comes sooner is the first once more: `timeout` and terminals send it twice
CLOSING_S = 2.0  # how long each other part of the farewell may take


class Worker(Lifecycle):
    """Runs a queue's jobs: `await worker.run()` until it is closed, or `async with worker:` beside other things.

    handler            called with each Job; `async def`, or a plain function, which then runs in a thread
    concurrency        how many handlers may run at the same time
    prefetch_bytes     how many bytes of jobs may wait here for a free handler, encoded
    max_attempts       how many runs a job has in all, crashes included, unless it sets its own number
    retry              the delays between them, unless the job sets its own
    lease_ms           how long this worker counts as alive after its last sign of life
    delayed_enabled    whether this worker may be the one that promotes delayed jobs and retries
    run_scheduler      whether it may be the one that fires repeatables, looking for new ones every scheduler_tick_ms
    claim_min_idle_ms  how long an official consumer's entry lies idle before it is taken over
    events_enabled     whether to write what happens to the queue's event stream, of about events_max_stream_len events
    store_results      whether to keep what handlers return, for result_ttl_ms
    strict             refuse a server whose settings put jobs at risk, instead of saying so in the log
    tracing            "auto": traces runs if OpenTelemetry has a provider; "off"; or an OpenTelemetry of your own
    metrics            a sink that is told in numbers what happens; see sinks.py
    metrics_port       where to serve /metrics, /healthz and /readyz, on metrics_host; 0 takes any port that is free
    shutdown_deadline_s  how long close() waits for handlers that are running before it cancels them; each then has 5 s
                       to clean up
    """

    def __init__(
        self,
        queue_name: str,
        handler: Handler,
        *,
        redis_url: str = defaults.REDIS_URL,
        tls: bool = False,
        concurrency: int = defaults.CONCURRENCY,
        max_attempts: int = defaults.MAX_ATTEMPTS,
        retry: RetryPolicy | None = None,
        group: str = defaults.GROUP,
        consumer_id: str | None = None,
        read_block_ms: int | None = defaults.READ_BLOCK_MS,
        read_count: int | None = defaults.READ_COUNT,
        claim_min_idle_ms: int | None = defaults.CLAIM_MIN_IDLE_MS,
        lease_ms: int = defaults.LEASE_MS,
        max_payload_bytes: int | None = defaults.MAX_PAYLOAD_BYTES,
        prefetch_bytes: int = defaults.PREFETCH_BYTES,
        dlq_max_stream_len: int | None = defaults.DLQ_MAX_LEN,
        strict: bool = False,
        events_enabled: bool = True,
        events_max_stream_len: int = defaults.EVENTS_MAX_LEN,
        store_results: bool = False,
        result_ttl_ms: int | None = defaults.RESULT_TTL_MS,
        delayed_enabled: bool = True,
        run_scheduler: bool = True,
        scheduler_tick_ms: int | None = defaults.SCHEDULER_TICK_MS,
        metrics: MetricsSink | None = None,
        metrics_port: int | None = None,
        metrics_host: str = defaults.METRICS_HOST,
        shutdown_deadline_s: float = defaults.SHUTDOWN_DEADLINE_S,
        credential_provider: CredentialProvider | None = None,
        tracing: TracingOption = "auto",
    ) -> None:
        consumer_id = f"c-{uuid4()}" if consumer_id is None else consumer_id
        self._settings = Settings(
            queue_name=checks.check_queue_name(queue_name),
            handler=check_handler(handler),
            consumer_id=checks.check_consumer_id(consumer_id),
            group=checks.check_consumer_name("group", group),
            concurrency=checks.check_int("concurrency", concurrency, 1),
            max_attempts=checks.check_int("max_attempts", max_attempts, 0, MAX_U32),
            retry=retry or RetryPolicy(),
            claim_min_idle_ms=checks.check_int(
                "claim_min_idle_ms", claim_min_idle_ms, limits.MIN_LEASE_MS, default=defaults.CLAIM_MIN_IDLE_MS
            ),
            lease_ms=checks.check_int("lease_ms", lease_ms, limits.MIN_LEASE_MS, limits.MAX_WORKER_LEASE_MS),
            dlq_max_len=checks.check_int("dlq_max_stream_len", dlq_max_stream_len, 0, default=defaults.DLQ_MAX_LEN),
            block_ms=checks.check_int("read_block_ms", read_block_ms, 1, default=defaults.READ_BLOCK_MS),
            read_count=checks.check_int("read_count", read_count, 1, default=defaults.READ_COUNT),
            max_payload_bytes=checks.check_int(
                "max_payload_bytes", max_payload_bytes, 1, default=defaults.MAX_PAYLOAD_BYTES
            ),
            prefetch_bytes=checks.check_int("prefetch_bytes", prefetch_bytes, 1),
            events_max_len=checks.check_bool("events_enabled", events_enabled)
            * checks.check_int("events_max_stream_len", events_max_stream_len, 1),
            result_ttl_ms=checks.check_bool("store_results", store_results)
            * checks.check_int(
                "result_ttl_ms", result_ttl_ms, 1, limits.MAX_RESULT_TTL_MS, default=defaults.RESULT_TTL_MS
            ),
            promotes=checks.check_bool("delayed_enabled", delayed_enabled),
            schedules=checks.check_bool("run_scheduler", run_scheduler),
            scheduler_tick_ms=checks.check_int(
                "scheduler_tick_ms", scheduler_tick_ms, 10, limits.MAX_TICK_MS, default=defaults.SCHEDULER_TICK_MS
            ),
            tracing=check_tracing(tracing),
            metrics=metrics,
            metrics_address=None if metrics_port is None else checks.check_metrics_address(metrics_host, metrics_port),
        )
        self._strict = checks.check_bool("strict", strict)
        self._shutdown_deadline_s = checks.check_seconds("shutdown_deadline_s", shutdown_deadline_s)
        client_name = f"chasqui-worker-{queue_name}"
        connector = Connector(redis_url, tls=tls, client_name=client_name, credential_provider=credential_provider)
        super().__init__("worker", queue_name, connector)
        self._hurry_wanted = asyncio.Event()
        self._signalled_at: float | None = None  # monotonic
        self._components: Components | None = None

    @property
    def name(self) -> str:
        return self.queue_name

    @property
    def consumer_id(self) -> str:
        return self._settings.consumer_id

    @property
    def concurrency(self) -> int:
        return self._settings.concurrency

    @property
    def metrics_port(self) -> int | None:
        """Where metrics are served, once it runs; None if they are not."""
        return None if self._components is None or self._components.http is None else self._components.http.port

    async def drain(self, timeout_s: float | None = None) -> None:
        """close(), with another deadline for the handlers that are running."""
        if timeout_s is not None:
            self._shutdown_deadline_s = checks.check_seconds("timeout_s", timeout_s)
        await self.close()

    async def _live(self) -> None:
        components = self._components = Components(
            self._settings, self._connector, on_death=self._on_death, is_abandoned=self._is_abandoned
        )
        try:
            if await self._unless_stopped(self._start(components)):
                self._has_started()
                log.info("worker %s runs queue %s with %d lanes", self.consumer_id, self.queue_name, self.concurrency)
                await self._stop_wanted.wait()
                await self._stop(components)
            log.info("worker %s has stopped", self.consumer_id)
        finally:
            await components.close()

    async def _start(self, components: Components) -> None:
        components.lanes.lease_until = 0.0  # nothing is started before the first renewal
        if components.http is not None:
            await components.http.start()  # before Redis is found: a worker that waits for it is alive, and not ready
        await self._wait_for_name(components)  # before anything is written under it
        await self._find_group(components)
        await self._heed_risks(components.broker)
        await self._count_earlier_life(components)  # before anything is read: whatever is pending now is of that life
        await components.heartbeat.start()  # before anything is read: a worker that holds entries is known to live
        components.reporter.open()
        components.lanes.start()
        for service in (components.acker, components.reader, components.reclaimer):
            service.start()
        if components.event_writer is not None:
            components.event_writer.start()
        if self._settings.promotes:
            components.promoter.start()
        if self._settings.schedules:
            components.scheduler.start()

    async def _stop(self, components: Components) -> None:
        """In the order that loses nothing, strands nothing and runs nothing twice."""
        if components.pages is not None:
            components.pages.is_closing = True
        await components.reclaimer.end(patience_s=0)
        await components.reader.stop_reading(helper=components.broker)  # before the rest, so that nothing new comes in
        await self._release(components, components.lanes.take_unstarted())
        await self._drain(components.lanes)
        cut_off = await components.lanes.stop(self._hurry_wanted)
        if components.event_writer is not None:
            await components.event_writer.end(patience_s=CLOSING_S)
        await components.acker.end(patience_s=SETTLE_S)  # after the lanes, so that all that has ended is settled
        await components.promoter.end(patience_s=CLOSING_S)
        await components.scheduler.end(patience_s=CLOSING_S)
        # What cannot be cut off (a thread, a handler that will not be cancelled) stays ours until the lease ends.
        runs_on = components.lanes.has_stubborn or (cut_off and components.threads is not None)
        if not runs_on:
            await self._release(components, cut_off)
        await components.heartbeat.stop()  # after everything that held a lease, before its name goes
        if not runs_on:
            await self._leave_group(components)

    async def _unless_stopped(self, starting: Coroutine[Any, Any, None]) -> bool:
        """Whether it came to its end; a stop that is asked for meanwhile ends it at once."""
        task = asyncio.ensure_future(starting)
        stop = asyncio.ensure_future(self._stop_wanted.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            task.result()
            return True
        task.cancel()
        await asyncio.wait({task, stop})
        return False

    def _is_inside(self, task: asyncio.Task[object] | None) -> bool:
        """A handler that closes its own worker must not wait for itself."""
        return self._components is not None and self._components.lanes.is_lane(task)

    def _is_abandoned(self) -> bool:
        """A loop that ends cancels everything, the worker's own task with it."""
        return self._main is None or self._main.done() or self._main.cancelling() > 0

    def _on_death(self, title: str, error: BaseException) -> None:
        """A part has died, which only a defect can bring about: the worker goes with it, loudly."""
        log.critical("the %s of worker %s has died, the worker stops", title, self.consumer_id, exc_info=error)
        self._die_of(error)

    async def _heed_risks(self, broker: Broker) -> None:
        """Say what the server's settings put at risk, or refuse to work there."""
        risks = await self._until_heard(broker.read_server_risks)
        if self._strict and any(risks):
            raise UnsafeServer(f"{self._connector} is not safe for jobs: {risks}")
        if risks.eviction:
            log.warning("%s: %s", self._connector, risks.eviction)
        if risks.persistence:  # many are content with snapshots, and documentation says what they can lose
            log.info("%s: %s", self._connector, risks.persistence)
        if holes := broker.known_vulnerability():
            log.warning("%s: %s", self._connector, holes)

    async def _wait_for_name(self, components: Components) -> None:
        """Until no lease is held under this worker's name. One that is renewed is another living process's."""
        me, is_told = (self._settings.group, self.consumer_id), False
        await self._until_heard(components.recovery.cap_leases, components.broker)
        first, left_ms = await self._until_heard(components.broker.lease_of, *me)
        while left_ms > 0:
            if not is_told:
                is_told = True
                log.info(
                    "worker %s waits for up to %.1f s: the lease of another process of that name goes on",
                    self.consumer_id,
                    left_ms / 1000,
                )
            await asyncio.sleep(min(left_ms / 1000 + 0.001, NAME_LOOK_S))
            lease, left_ms = await self._until_heard(components.broker.lease_of, *me)
            if lease > first:
                raise ConsumerInUse(
                    f"consumer_id {self.consumer_id!r} is in use by another living worker of queue "
                    f"{self.queue_name!r} and group {self._settings.group!r}: give each process one of its own"
                )

    async def _find_group(self, components: Components) -> None:
        """Make the group if there is none. Workers that live are waited for: each must say what it holds."""
        while not await self._until_heard(components.recovery.report, components.broker):  # noqa: ASYNC110  only Redis knows
            await asyncio.sleep(limits.REGROUP_S)

    async def _count_earlier_life(self, components: Components) -> None:
        """What an earlier life under this name held may have been run, and that delivery counts.

        The reader then finds it as it finds all that is pending for us without our knowing.
        """
        me, after = (self._settings.group, self.consumer_id), b""
        try:
            last = await self._until_heard(components.broker.last_pending_id, self._settings.group)
            while last and (
                seen := await self._until_heard(components.broker.list_pending_ids, *me, after, last, COUNT_A_CALL)
            ):
                # Said again with the deliveries that were seen at first: nothing counts twice.
                await self._until_heard(components.broker.count_delivery, *me, seen)
                components.reader.may_have_orphans = True
                after = seen[-1][0]
        except ReplyError as error:
            if action_for(error) is not ErrorAction.NO_GROUP:  # without a group nothing is pending; it is made anew
                raise

    async def _until_heard(self, say: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Wait for a Redis that is away; raise for one that will never do."""
        outage = Outage(f"worker {self.consumer_id} waits for Redis", f"worker {self.consumer_id} has found Redis")
        while True:
            try:
                reply = await say(*arguments)
            except RedisTrouble as error:
                if action_for(error) in (ErrorAction.FATAL, ErrorAction.REAUTHENTICATE, ErrorAction.NO_GROUP):
                    raise
                await asyncio.sleep(outage.goes_on(error))
            else:
                outage.is_over()
                return reply

    async def _drain(self, lanes: Lanes) -> None:
        """Let what is held finish, until the deadline or a second signal."""
        tell_what_runs(
            self.consumer_id,
            lanes.running(),
            stopped_by=self._stopped_by,
            deadline_s=self._shutdown_deadline_s,
            has_signals=self._signalled_at is not None,
        )
        waits = {asyncio.ensure_future(lanes.drain()), asyncio.ensure_future(self._hurry_wanted.wait())}
        await asyncio.wait(waits, timeout=self._shutdown_deadline_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
        why = "a second signal came" if self._hurry_wanted.is_set() else f"{self._shutdown_deadline_s:g} s are over"
        has_threads = not is_async(self._settings.handler)
        fate = fate_of_threads(self._settings.lease_ms / 1000) if has_threads else fate_of_coroutines(CLEANUP_S)
        tell_what_is_cut_off(self.consumer_id, lanes.running(), why=why, fate=fate)

    async def _release(self, components: Components, jobs: list[Delivery]) -> None:
        """Hand jobs back for others to run at once, without using up an attempt."""
        try:
            for start in range(0, len(jobs), limits.ACK_BATCH):
                held = [(job.entry_id, job.earlier_deliveries) for job in jobs[start : start + limits.ACK_BATCH]]
                await _insist(
                    functools.partial(components.broker.release_entries, self._settings.group, self.consumer_id, held)
                )
        except (RedisTrouble, TimeoutError) as error:
            log.warning("%d jobs of %s run again when its lease ends: %r", len(jobs), self.consumer_id, error)
        else:
            if jobs:
                log.info("worker %s has handed back %d unfinished jobs", self.consumer_id, len(jobs))

    async def _leave_group(self, components: Components) -> None:
        try:
            await _insist(functools.partial(components.broker.leave_group, self._settings.group, self.consumer_id))
        except (RedisTrouble, TimeoutError) as error:
            log.info("worker %s leaves its name in the group: %r", self.consumer_id, error)

    def _on_signal(self, signal_name: str) -> None:
        now = monotonic()
        if self._signalled_at is None:
            self._signalled_at = now
            super()._on_signal(signal_name)
        elif now - self._signalled_at >= SECOND_SIGNAL_S:
            log.warning("%s again: worker %s stops now", signal_name, self.consumer_id)
            self._hurry_wanted.set()


async def _insist(say: Callable[[], Awaitable[Any]]) -> None:
    """Say a part of the farewell until it is heard, for CLOSING_S at the most. All parts can be said twice."""
    async with asyncio.timeout(CLOSING_S):
        while True:
            try:
                await say()
            except (ConnectionLost, CommandTimeout):
                await asyncio.sleep(0.05)
            else:
                return
