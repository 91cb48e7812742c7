"""The parts of a worker, and how they are put together. Each gets what it needs through its constructor."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from .. import logs
from .._core import defaults, limits
from .._core.delivery import Delivery
from .._http.prometheus_sink import PrometheusSink
from .._http.server import HttpServer
from .._http.worker_pages import WorkerPages
from .._redis.broker import Broker
from .._redis.connector import Connector
from .._redis.keys import Keys
from .._redis.repeatables import RepeatablesBroker
from .._redis.timed_broker import make_broker
from .._wire.event import Event
from .._wire.worker_record import WorkerInfo, encode_worker
from ..job import Job
from ..metrics import GuardedSinks
from ..tracing import RunHandler, SpanOrigin, find_tracing
from .acker import Acker
from .config import WorkerConfig
from .decoder import Decoder
from .event_writer import EventWriter
from .failure_log import FailureLog
from .failures import FailureHandler
from .group_recovery import GroupRecovery
from .handlers import is_async
from .heartbeat import Heartbeat
from .job_reporter import JobReporter
from .lanes import Lanes
from .promoter import Promoter
from .reader import Reader
from .reclaimer import Reclaimer
from .scheduler import Scheduler
from .threads import Threads

HOST = socket.gethostname()
JOBS_SHOWN = 20  # of those that run; a worker may run thousands


class Components:
    """Built from the end of a job to its beginning: who settles it, who runs it, who reads it, who keeps it."""

    def __init__(
        self,
        settings: WorkerConfig,
        connector: Connector,
        *,
        on_death: Callable[[str, BaseException], None],
        is_abandoned: Callable[[], bool],
    ) -> None:
        self._settings, self._connector = settings, connector
        self._started_at_ms = time.time_ns() // 1_000_000
        self._keys, self._me = Keys(settings.queue_name), (settings.group, settings.consumer_id)
        self.metrics, self._shown = _sinks(settings)
        self.broker = make_broker(connector.connection(timeout_s=limits.WORK_TIMEOUT_S), self._keys, self.metrics)
        # A blocked read would hold up whatever is sent behind it, so the reader has a connection of its own.
        # hot: entries come 15 us sooner in RESP2 on an idle machine
        self.reading = Broker(connector.connection(timeout_s=limits.WORK_TIMEOUT_S, is_told=False), self._keys)
        self._keeping = Broker(connector.connection(timeout_s=settings.lease_ms / 1000), self._keys)
        self.threads = None if is_async(settings.handler) else Threads(settings.handler, settings.concurrency)
        self.promoter, self.scheduler = self._make_leaders()
        self.event_writer, self.reporter = self._make_tellers()
        self.acker = self._make_acker()
        self.failures = FailureLog(asyncio.get_running_loop().call_later)
        verdicts = FailureHandler(
            settings.consumer_id,
            max_attempts=settings.max_attempts,
            policy=settings.retry,
            failure_log=self.failures,
            reschedule=self.acker.reschedule,
            bury=self.acker.bury,
        )
        decoder = self._make_decoder(verdicts)
        self.lanes = self._make_lanes(verdicts, decoder)
        self.recovery = GroupRecovery(*self._me, settings.lease_ms, self._held)
        self.reader = self._make_reader(decoder)
        self.heartbeat = self._make_keeper(on_death)
        self.reclaimer = Reclaimer(
            self.broker,
            *self._me,
            intake=self.reader,
            claim_min_idle_ms=settings.claim_min_idle_ms,
            lease_s=settings.lease_ms / 1000,
            cap_leases=self.recovery.cap_leases,
            last_trouble=lambda: self.heartbeat.troubled_at,
        )
        self.pages, self.http = self._make_window()
        self._join(on_death, is_abandoned)

    def _make_leaders(self) -> tuple[Promoter, Scheduler]:
        settings, tell = self._settings, None if self.metrics is None else self.metrics.tell
        promoter = Promoter(self.broker, settings.consumer_id, events_max_len=settings.events_max_len, tell=tell)
        repeats, tick_s = RepeatablesBroker(self.broker, self._keys), settings.scheduler_tick_ms / 1000
        return promoter, Scheduler(repeats, settings.consumer_id, tick_s=tick_s, tell=tell)

    def _make_tellers(self) -> tuple[EventWriter | None, JobReporter]:
        """Who tells others of jobs: the events, and what handlers say."""
        settings, event_writer = self._settings, None
        if settings.events_max_len:
            stores_results = settings.stored_result_ttl_ms > 0
            event_writer = EventWriter(self.broker, max_len=settings.events_max_len, stores_results=stores_results)
        kept_ms = settings.stored_result_ttl_ms or defaults.RESULT_TTL_MS
        return event_writer, JobReporter(
            self.broker, kept_ms=kept_ms, tell=None if event_writer is None else event_writer.tell
        )

    def _make_acker(self) -> Acker:
        return Acker(
            self.broker,
            *self._me,
            dlq_max_len=self._settings.dlq_max_stream_len,
            on_rescheduled=self.promoter.expect,
            on_fenced=self._look_for_orphans,
            on_group_gone=self._see_to_the_group,
            event_writer=self.event_writer,
            metrics=self.metrics,
            result_ttl_ms=self._settings.stored_result_ttl_ms,
            events_max_len=self._settings.events_max_len,
        )

    def _make_lanes(self, verdicts: FailureHandler, decoder: Decoder) -> Lanes:
        settings, threads = self._settings, self.threads
        handler = settings.handler if threads is None else threads.run
        return Lanes(
            _observed(settings, self._connector, _given_jobs(handler, self.reporter)),
            settings.concurrency,
            on_done=self.acker.done,
            on_failed=logs.known_meanwhile(settings.queue_name, verdicts.failed),
            decode=decoder.finish,
        )

    def _make_decoder(self, verdicts: FailureHandler) -> Decoder:
        settings = self._settings
        return Decoder(
            max_payload_bytes=settings.max_payload_bytes,
            max_attempts=settings.max_attempts,
            on_rejected=verdicts.rejected,
            on_exhausted=logs.known_meanwhile(settings.queue_name, verdicts.exhausted),
        )

    def _make_reader(self, decoder: Decoder) -> Reader:
        settings = self._settings
        return Reader(
            self.reading,
            *self._me,
            lanes=self.lanes,
            read_count=settings.read_count,
            block_ms=settings.read_block_ms,
            decoder=decoder,
            recovery=self.recovery,
            on_group_gone=self._see_to_the_group,
            max_bytes=settings.prefetch_bytes,
            max_entry_bytes=settings.max_payload_bytes + limits.ENTRY_EXTRA_BYTES,
            helper=self.broker,
        )

    def _make_keeper(self, on_death: Callable[[str, BaseException], None]) -> Heartbeat:
        return Heartbeat(
            self._keeping,
            *self._me,
            lanes=self.lanes,
            recovery=self.recovery,
            on_lost=self._look_for_orphans,
            on_pause=self.reader.pause,
            on_death=on_death,
            describe=self._describe,
            lease_ms=self._settings.lease_ms,
            every_s=self._settings.renew_s,
            hold_s=self._settings.hold_s,
        )

    def _join(self, on_death: Callable[[str, BaseException], None], is_abandoned: Callable[[], bool]) -> None:
        """What the parts tell each other."""
        if self.event_writer is not None:
            self.event_writer.on_death = on_death
            self.lanes.on_start = self.event_writer.started
            self.reader.on_drained = partial(self.event_writer.tell, [Event("drained")])
        if self.metrics is not None:
            self.reader.on_batch = self.metrics.tell
        self.lanes.on_room = self.reader.wake
        self.acker.on_settled = self.reader.on_settled
        self.reader.unsettled = lambda: self.acker.unsettled
        self.lanes.is_abandoned = is_abandoned
        self.reader.claims = self.reclaimer
        for part in (self.lanes, self.acker, self.reader, self.reclaimer, self.promoter, self.scheduler):
            part.on_death = on_death

    def _make_window(self) -> tuple[WorkerPages | None, HttpServer | None]:
        """What shows this worker to the outside, if it is to be shown."""
        if self._settings.metrics_address is None or self._shown is None or self.metrics is None:
            return None, None
        pages = WorkerPages(
            self._shown,
            concurrency=self._settings.concurrency,
            lanes=self.lanes,
            heartbeat=self.heartbeat,
            promoter=self.promoter,
            scheduler=self.scheduler,
            event_writer=self.event_writer,
            sinks=self.metrics,
            connections=(self.broker.connection, self.reading.connection, self._keeping.connection),
        )
        return pages, HttpServer(*self._settings.metrics_address, pages.pages())

    async def close(self) -> None:
        if self.http is not None:
            await self.http.stop()
        self.failures.sum_up()
        await self.heartbeat.stop()
        await self.reading.connection.close()
        await self.broker.connection.close()
        if self.threads is not None:
            self.threads.close()

    def _held(self) -> dict[bytes, int]:
        """Every entry that this worker has to do with, each with its delivery. Also called from the keeper's thread."""
        return self.lanes.held() | self.acker.held()

    def _describe(self) -> bytes:
        """What Queue.workers() shows. Also called from the keeper's thread."""
        running = self.lanes.running()
        return encode_worker(
            WorkerInfo(
                consumer_id=self._settings.consumer_id,
                host=HOST,
                pid=os.getpid(),
                started_at_ms=self._started_at_ms,
                concurrency=self._settings.concurrency,
                busy=len(running),
                job_ids=[job.id for job in running[:JOBS_SHOWN]],
            )
        )

    def _see_to_the_group(self) -> None:
        """It is gone. Only the keeper speaks for this worker: it can do so also while the loop is blocked."""
        self.heartbeat.hurry()

    def _look_for_orphans(self) -> None:
        """Entries may be pending for this worker that it does not know of, or not by that delivery."""
        self.reader.may_have_orphans = True


def _sinks(settings: WorkerConfig) -> tuple[GuardedSinks | None, PrometheusSink | None]:
    """Whom to tell, and whose counts to serve: the user's own if it can be."""
    own = settings.metrics
    printable = own if isinstance(own, PrometheusSink) else None
    if printable is None and settings.metrics_address is not None:
        printable = PrometheusSink(settings.queue_name)
    sinks = [sink for sink in (own, None if printable is own else printable) if sink is not None]
    return (GuardedSinks(sinks) if sinks else None), printable


def _observed(settings: WorkerConfig, connector: Connector, handler: RunHandler) -> RunHandler:
    """The handler with a trace around it and its job known to its logs, each only if somebody looks at them."""
    tracing = find_tracing(settings.tracing)
    if tracing is not None:
        me = (settings.group, settings.consumer_id)
        handler = tracing.processing(
            SpanOrigin(settings.queue_name, connector.server, *me, settings.max_attempts), handler
        )
    return logs.known_from_here(settings.queue_name, handler)


def _given_jobs(handler: Callable[[Job], Awaitable[Any]], reporter: JobReporter) -> RunHandler:
    """The handler, called with a Job of its own for each delivery."""

    def run(delivery: Delivery) -> Awaitable[Any]:
        own_id, name, data = delivery.id, delivery.name, delivery.data
        delivery.data = None
        attempt, created_at_ms = delivery.attempt, delivery.created_at_ms
        return handler(Job(own_id, name, data, attempt, created_at_ms, reporter, own_id, name, delivery.extras))

    return run
