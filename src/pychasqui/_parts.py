"""The parts of a worker, and how they are put together. Each gets what it needs through its constructor."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import config, logs
from ._engine.acker import Acker
from ._engine.announcer import Announcer
from ._engine.decoder import Decoder
from ._engine.delivery import Delivery
from ._engine.desk import Desk
from ._engine.event import Event
from ._engine.failure_log import FailureLog
from ._engine.http import HttpServer
from ._engine.keeper import Keeper
from ._engine.lanes import Lanes
from ._engine.promoter import Promoter
from ._engine.reader import Reader
from ._engine.reclaimer import Reclaimer
from ._engine.roll import Roll
from ._engine.scheduler import Scheduler
from ._engine.threads import Threads
from ._engine.verdicts import Verdicts
from ._handlers import Handler, is_async
from ._place import Place
from ._redis.broker import Broker
from ._redis.keys import Keys
from ._redis.repeats import RepeatBroker
from ._redis.timing import time_commands
from ._vitals import Vitals
from .job import Job
from .look import WorkerInfo, encode_worker
from .prometheus import PrometheusSink
from .retry import RetryPolicy
from .sinks import GuardedSinks, MetricsSink
from .tracing import RunHandler, Scene, TracingOption, find_tracing

HOST = socket.gethostname()
JOBS_SHOWN = 20  # of those that run; a worker may run thousands


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a worker was told, checked."""

    queue_name: str
    handler: Handler
    consumer_id: str
    group: str
    concurrency: int
    max_attempts: int
    retry: RetryPolicy
    claim_min_idle_ms: int
    lease_ms: int
    dlq_max_len: int
    block_ms: int
    read_count: int
    max_payload_bytes: int
    prefetch_bytes: int
    events_max_len: int  # 0: no events
    result_ttl_ms: int  # 0: results are not stored
    promotes: bool
    schedules: bool
    scheduler_tick_ms: int
    tracing: TracingOption
    metrics: MetricsSink | None
    metrics_address: tuple[str, int] | None  # host and port; None: nothing is served

    @property
    def renew_s(self) -> float:
        """How often the lease is renewed, and with it what is to be renewed as often."""
        return min(self.lease_ms, self.claim_min_idle_ms) / 3000

    @property
    def hold_s(self) -> float:
        """How often the hold on entries is renewed: within what makes consumers without a lease take them."""
        return self.claim_min_idle_ms / 3000


class Parts:
    """Built from the end of a job to its beginning: who settles it, who runs it, who reads it, who keeps it."""

    def __init__(
        self,
        settings: Settings,
        place: Place,
        *,
        on_death: Callable[[str, BaseException], None],
        is_abandoned: Callable[[], bool],
    ) -> None:
        self._settings, self._place = settings, place
        self._started_at_ms = time.time_ns() // 1_000_000
        self._keys, self._me = Keys(settings.queue_name), (settings.group, settings.consumer_id)
        self.broker = Broker(place.connection(timeout_s=config.WORK_TIMEOUT_S), self._keys)
        # A blocked read would hold up whatever is sent behind it, so the reader has a connection of its own.
        # hot: entries come 15 us sooner in RESP2 on an idle machine
        self.reading = Broker(place.connection(timeout_s=config.WORK_TIMEOUT_S, is_told=False), self._keys)
        self._keeping = Broker(place.connection(timeout_s=settings.lease_ms / 1000), self._keys)
        self.threads = None if is_async(settings.handler) else Threads(settings.handler, settings.concurrency)
        self.metrics, self._shown = _sinks(settings)
        time_commands(self.broker, self.metrics)
        self.promoter, self.scheduler = self._make_leaders()
        self.announcer, self.desk = self._make_tellers()
        self.acker = self._make_acker()
        self.failures = FailureLog(asyncio.get_running_loop().call_later)
        verdicts = Verdicts(
            self.acker,
            settings.consumer_id,
            max_attempts=settings.max_attempts,
            policy=settings.retry,
            failures=self.failures,
            announces=self.announcer is not None,
            counts=self.metrics is not None,
        )
        decoder = self._make_decoder(verdicts)
        self.lanes = self._make_lanes(verdicts, decoder)
        self.roll = Roll(*self._me, settings.lease_ms, self._held)
        self.reader = self._make_reader(decoder)
        self.keeper = self._make_keeper(on_death)
        self.reclaimer = Reclaimer(
            self.broker,
            *self._me,
            intake=self.reader,
            claim_min_idle_ms=settings.claim_min_idle_ms,
            lease_s=settings.lease_ms / 1000,
            cap_leases=self.roll.cap_leases,
            last_trouble=lambda: self.keeper.troubled_at,
        )
        self.vitals, self.http = self._make_window()
        self._join(on_death, is_abandoned)

    def _make_leaders(self) -> tuple[Promoter, Scheduler]:
        settings, tell = self._settings, None if self.metrics is None else self.metrics.tell
        promoter = Promoter(self.broker, settings.consumer_id, events_max_len=settings.events_max_len, tell=tell)
        repeats, tick_s = RepeatBroker(self.broker, self._keys), settings.scheduler_tick_ms / 1000
        return promoter, Scheduler(repeats, settings.consumer_id, tick_s=tick_s, tell=tell)

    def _make_tellers(self) -> tuple[Announcer | None, Desk]:
        """Who tells others of jobs: the events, and what handlers say."""
        settings, announcer = self._settings, None
        if settings.events_max_len:
            stores_results = settings.result_ttl_ms > 0
            announcer = Announcer(self.broker, max_len=settings.events_max_len, stores_results=stores_results)
        kept_ms = settings.result_ttl_ms or config.RESULT_TTL_MS
        return announcer, Desk(self.broker, kept_ms=kept_ms, tell=None if announcer is None else announcer.tell)

    def _make_acker(self) -> Acker:
        return Acker(
            self.broker,
            *self._me,
            dlq_max_len=self._settings.dlq_max_len,
            on_rescheduled=self.promoter.expect,
            on_fenced=self._look_for_orphans,
            on_group_gone=self._see_to_the_group,
            announcer=self.announcer,
            metrics=self.metrics,
            result_ttl_ms=self._settings.result_ttl_ms,
            events_max_len=self._settings.events_max_len,
        )

    def _make_lanes(self, verdicts: Verdicts, decoder: Decoder) -> Lanes:
        settings, threads = self._settings, self.threads
        handler = settings.handler if threads is None else threads.run
        return Lanes(
            _observed(settings, self._place, _given_jobs(handler, self.desk)),
            settings.concurrency,
            on_done=self.acker.done,
            on_failed=logs.known_meanwhile(settings.queue_name, verdicts.failed),
            decode=decoder.finish,
        )

    def _make_decoder(self, verdicts: Verdicts) -> Decoder:
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
            block_ms=settings.block_ms,
            decoder=decoder,
            roll=self.roll,
            on_group_gone=self._see_to_the_group,
            max_bytes=settings.prefetch_bytes,
            max_entry_bytes=settings.max_payload_bytes + config.ENTRY_EXTRA_BYTES,
            helper=self.broker,
        )

    def _make_keeper(self, on_death: Callable[[str, BaseException], None]) -> Keeper:
        return Keeper(
            self._keeping,
            *self._me,
            lanes=self.lanes,
            roll=self.roll,
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
        if self.announcer is not None:
            self.announcer.on_death = on_death
            self.lanes.on_start = self.announcer.started
            self.reader.on_drained = partial(self.announcer.tell, [Event("drained")])
        if self.metrics is not None:
            self.reader.on_batch = self.metrics.tell
        self.lanes.on_room = self.reader.wake
        self.acker.on_settled = self.reader.on_settled
        self.reader.unsettled = lambda: self.acker.unsettled
        self.lanes.is_abandoned = is_abandoned
        self.reader.claims = self.reclaimer
        for part in (self.lanes, self.acker, self.reader, self.reclaimer, self.promoter, self.scheduler):
            part.on_death = on_death

    def _make_window(self) -> tuple[Vitals | None, HttpServer | None]:
        """What shows this worker to the outside, if it is to be shown."""
        if self._settings.metrics_address is None or self._shown is None or self.metrics is None:
            return None, None
        vitals = Vitals(
            self._shown,
            concurrency=self._settings.concurrency,
            lanes=self.lanes,
            keeper=self.keeper,
            promoter=self.promoter,
            scheduler=self.scheduler,
            announcer=self.announcer,
            sinks=self.metrics,
            connections=(self.broker.connection, self.reading.connection, self._keeping.connection),
        )
        return vitals, HttpServer(*self._settings.metrics_address, vitals.pages())

    async def close(self) -> None:
        if self.http is not None:
            await self.http.stop()
        self.failures.sum_up()
        await self.keeper.stop()
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
        self.keeper.hurry()

    def _look_for_orphans(self) -> None:
        """Entries may be pending for this worker that it does not know of, or not by that delivery."""
        self.reader.may_have_orphans = True


def _sinks(settings: Settings) -> tuple[GuardedSinks | None, PrometheusSink | None]:
    """Whom to tell, and whose counts to serve: the user's own if it can be."""
    own = settings.metrics
    shown = own if isinstance(own, PrometheusSink) else None
    if shown is None and settings.metrics_address is not None:
        shown = PrometheusSink(settings.queue_name)
    sinks = [sink for sink in (own, None if shown is own else shown) if sink is not None]
    return (GuardedSinks(sinks) if sinks else None), shown


def _observed(settings: Settings, place: Place, handler: RunHandler) -> RunHandler:
    """The handler with a trace around it and its job known to its logs, each only if somebody looks at them."""
    tracing = find_tracing(settings.tracing)
    if tracing is not None:
        me = (settings.group, settings.consumer_id)
        handler = tracing.processing(Scene(settings.queue_name, place.server, *me, settings.max_attempts), handler)
    return logs.known_from_here(settings.queue_name, handler)


def _given_jobs(handler: Callable[[Job], Awaitable[Any]], desk: Desk) -> RunHandler:
    """The handler, called with a Job of its own for each delivery."""

    def run(delivery: Delivery) -> Awaitable[Any]:
        own_id, name, data = delivery.id, delivery.name, delivery.data
        delivery.data = None
        attempt, created_at_ms = delivery.attempt, delivery.created_at_ms
        return handler(Job(own_id, name, data, attempt, created_at_ms, desk, own_id, name, delivery.extras))

    return run
