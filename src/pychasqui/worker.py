"""Worker: starts the parts, drains and stops them in order. `_worker/wiring.py` puts them together."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar

from ._core import checks, limits
from ._core.config import takes_fields_of
from ._core.delivery import Delivery
from ._redis.broker import Broker
from ._redis.connector import Connector
from ._redis.error_actions import ErrorAction, action_for
from ._worker.config import WorkerConfig
from ._worker.drain_log import fate_of_coroutines, fate_of_threads, tell_what_is_cut_off, tell_what_runs
from ._worker.handlers import is_async
from ._worker.lanes import CLEANUP_S, Lanes
from ._worker.lifecycle import Lifecycle
from ._worker.service import Outage
from ._worker.wiring import Components
from .errors import CommandTimeout, ConnectionLost, ConsumerInUse, RedisTrouble, ReplyError, UnsafeServer

log = logging.getLogger("chasqui.worker")
T = TypeVar("T")

COUNT_A_CALL = 500
NAME_LOOK_S = 0.1
SETTLE_S = 5.0  # how long a closing worker tries to settle what has ended while Redis is away
SECOND_SIGNAL_S = 0.2  # a signal that comes sooner is the first once more: `timeout` and terminals send it twice
CLOSING_S = 2.0  # how long each other part of the farewell may take


class Worker(Lifecycle):
    """Runs a queue's jobs: `await worker.run()` until it is closed, or `async with worker:` beside other things.

    queue_name            the queue whose jobs it runs
    handler               called with each Job: an `async def`, or a plain function, which then runs in a thread
    redis_url             redis://, rediss:// (TLS), unix:// or embedded://
    tls                   use TLS although the URL says redis://
    concurrency           how many handlers may run at the same time
    max_attempts          how many runs a job has in all, crashes included, unless the job sets its own number
    retry                 the delays between runs, unless the job sets its own
    group                 the consumer group; official workers are in "default"
    consumer_id           its name in the group, one for each living worker; None makes one up
    read_block_ms         how long an idle read waits before it asks again
    read_count            how many entries one read brings at most
    claim_min_idle_ms     how long an official consumer's entry lies idle before this worker takes it over
    lease_ms              how long this worker counts as alive after its last heartbeat
    max_payload_bytes     a larger encoded job is buried instead of run
    prefetch_bytes        how many bytes of encoded jobs may wait here for a free handler
    dlq_max_stream_len    how many dead letters are kept; those that a new one pushes out are counted
    strict                refuse a server whose settings put jobs at risk, instead of logging a warning
    events_enabled        whether to write events to the queue's event stream
    events_max_stream_len about how many events that stream keeps
    store_results         whether to keep what handlers return
    result_ttl_ms         for how long results are kept, and with them progress and job logs
    delayed_enabled       whether it may be the worker that promotes delayed jobs and retries
    run_scheduler         whether it may be the worker that fires repeatables
    scheduler_tick_ms     how often it then looks for repeatables that it was not notified of
    metrics               a sink that receives a record of what happens; see MetricsSink
    metrics_port          the port for /metrics, /healthz and /readyz; 0 takes any free port, None serves nothing
    metrics_host          the address to serve them on
    shutdown_deadline_s   how long close() waits for running handlers before it cancels them; each then has 5 s to clean
                          up
    credential_provider   asked for user name and password before each connection is made
    tracing               "auto" traces runs if OpenTelemetry has a provider; "off"; or an OpenTelemetry of your own
    """

    @takes_fields_of(WorkerConfig)
    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._shutdown_deadline_s = config.shutdown_deadline_s
        connector = Connector(
            config.redis_url,
            tls=config.tls,
            client_name=f"chasqui-worker-{config.queue_name}",
            credential_provider=config.credential_provider,
        )
        super().__init__("worker", config.queue_name, connector)
        self._hurry_wanted = asyncio.Event()
        self._signalled_at: float | None = None  # monotonic
        self._components: Components | None = None

    @property
    def name(self) -> str:
        return self.queue_name

    @property
    def consumer_id(self) -> str:
        return self._config.consumer_id

    @property
    def concurrency(self) -> int:
        return self._config.concurrency

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
            self._config, self._connector, on_death=self._on_death, is_abandoned=self._is_abandoned
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
        if self._config.delayed_enabled:
            components.promoter.start()
        if self._config.run_scheduler:
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
        if self._config.strict and any(risks):
            raise UnsafeServer(f"{self._connector} is not safe for jobs: {risks}")
        if risks.eviction:
            log.warning("%s: %s", self._connector, risks.eviction)
        if risks.persistence:  # many are content with snapshots, and documentation says what they can lose
            log.info("%s: %s", self._connector, risks.persistence)
        if holes := broker.known_vulnerability():
            log.warning("%s: %s", self._connector, holes)

    async def _wait_for_name(self, components: Components) -> None:
        """Until no lease is held under this worker's name. One that is renewed is another living process's."""
        me, is_told = (self._config.group, self.consumer_id), False
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
                    f"{self.queue_name!r} and group {self._config.group!r}: give each process one of its own"
                )

    async def _find_group(self, components: Components) -> None:
        """Make the group if there is none. Workers that live are waited for: each must say what it holds."""
        while not await self._until_heard(components.recovery.report, components.broker):  # noqa: ASYNC110  only Redis knows
            await asyncio.sleep(limits.REGROUP_S)

    async def _count_earlier_life(self, components: Components) -> None:
        """What an earlier life under this name held may have been run, and that delivery counts.

        The reader then finds it as it finds all that is pending for us without our knowing.
        """
        me, after = (self._config.group, self.consumer_id), b""
        try:
            last = await self._until_heard(components.broker.last_pending_id, self._config.group)
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
        has_threads = not is_async(self._config.handler)
        fate = fate_of_threads(self._config.lease_ms / 1000) if has_threads else fate_of_coroutines(CLEANUP_S)
        tell_what_is_cut_off(self.consumer_id, lanes.running(), why=why, fate=fate)

    async def _release(self, components: Components, jobs: list[Delivery]) -> None:
        """Hand jobs back for others to run at once, without using up an attempt."""
        try:
            for start in range(0, len(jobs), limits.ACK_BATCH):
                held = [(job.entry_id, job.earlier_deliveries) for job in jobs[start : start + limits.ACK_BATCH]]
                await _insist(
                    functools.partial(components.broker.release_entries, self._config.group, self.consumer_id, held)
                )
        except (RedisTrouble, TimeoutError) as error:
            log.warning("%d jobs of %s run again when its lease ends: %r", len(jobs), self.consumer_id, error)
        else:
            if jobs:
                log.info("worker %s has handed back %d unfinished jobs", self.consumer_id, len(jobs))

    async def _leave_group(self, components: Components) -> None:
        try:
            await _insist(functools.partial(components.broker.leave_group, self._config.group, self.consumer_id))
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
