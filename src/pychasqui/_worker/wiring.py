"""Puts a worker together: build_components() makes the parts in one pass, and each gets what it needs there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial

from .. import logs
from .._core import defaults, limits
from .._redis.broker import Broker
from .._redis.connector import Connector
from .._redis.keys import Keys
from .._redis.repeatables import RepeatablesBroker
from .._redis.scripts import read_and_hash_all_scripts
from ..metrics import GuardedSinks
from .acker import Acker
from .batch_sizes import BatchSizes
from .config import WorkerConfig
from .decoder import Decoder
from .event_writer import EventWriter
from .failed_job_mover import FailedJobMover
from .failure_log import FailureLog
from .failures import FailureHandler
from .group_recovery import GroupRecovery
from .handlers import is_async_handler
from .health import HealthCheck
from .heartbeat import Heartbeat
from .intake import Intake
from .job_reporter import JobReporter
from .job_stops import JobStops
from .lanes import Lanes
from .lease_renewal import LeaseRenewal, RenewalTimes
from .loop_thread import LoopThread
from .loop_watch import LoopWatch
from .orphans import Orphans
from .pending_entries import PendingEntries
from .prefetch import Prefetch
from .promoter import PromoterService
from .queue_watch import QueueWatch
from .reader import Reader, ReadLimits
from .reclaimer import Reclaimer
from .record_maker import RecordMaker
from .registry_writer import RegistryWriter
from .release import Releaser
from .round_trips import RoundTrips
from .run_watch import RunWatch
from .scheduler import SchedulerService
from .server_clock import ServerClock
from .shared import Holdings, OnDeath, Shared
from .thread_lanes import AnyLanes, ThreadLanes
from .wrapped_handler import wrap_handler

FEWEST_REPLY_BYTES = 4 * 1024 * 1024  # a smaller reply is never given up


@dataclass(frozen=True, kw_only=True)
class Components:
    """The parts of one worker that its start, its end and its pages speak to."""

    shared: Shared
    broker: Broker
    reading: Broker
    metrics: GuardedSinks | None
    promoter: PromoterService
    scheduler: SchedulerService
    event_writer: EventWriter | None
    reporter: JobReporter
    acker: Acker
    failure_log: FailureLog
    lanes: AnyLanes
    threads: ThreadLanes | None  # the lanes, if the handler is a plain function
    run_watch: RunWatch
    recovery: GroupRecovery
    prefetch: Prefetch
    intake: Intake
    releaser: Releaser
    orphans: Orphans
    reclaimer: Reclaimer
    reader: Reader
    heartbeat: Heartbeat
    health: HealthCheck

    async def close(self) -> None:
        """Lets go of threads and connections. Safe after a start that failed."""
        self.failure_log.log_and_reset_counts()
        self.run_watch.stop()
        await self.heartbeat.stop()
        await self.reading.close()
        await self.broker.close()
        if self.threads is not None:
            self.threads.let_go_of_threads()


def build_components(
    config: WorkerConfig,
    connector: Connector,
    metrics: GuardedSinks | None,
    *,
    on_death: OnDeath,
    is_abandoned: Callable[[], bool],
) -> Components:
    """Makes the parts of a worker, from the end of a job to its beginning: settling, running, reading, renewing."""
    group, consumer, lease_ms = config.group, config.consumer_id, config.lease_ms
    read_and_hash_all_scripts()  # the scripts: files that are replaced while the worker runs are another version's
    record_metric = None if metrics is None else metrics.record
    keys = Keys(config.queue_name)
    shared = Shared(
        group=group,
        consumer=consumer,
        holdings=Holdings(config.concurrency, consumer),
        on_death=on_death,
        batch_sizes=BatchSizes(config.read_count, writes_events=config.events_enabled),
    )

    broker = connector.make_broker(keys, timeout_s=limits.WORK_TIMEOUT_S, sinks=metrics)
    # A blocked read would hold up whatever is sent behind it, so the reader has a connection of its own.
    # hot: entries come 15 us sooner in RESP2 on an idle machine
    reading = connector.make_broker(keys, timeout_s=limits.WORK_TIMEOUT_S, gets_messages=False)
    renewing = connector.make_broker(keys, timeout_s=lease_ms / 1000)

    promoter = PromoterService(
        broker,
        consumer,
        on_death=on_death,
        living_workers=shared.living_workers,
        events_max_len=config.events_max_len_or_zero,
        record_metric=record_metric,
    )
    scheduler = SchedulerService(
        RepeatablesBroker(broker, keys),
        consumer,
        on_death=on_death,
        living_workers=shared.living_workers,
        tick_s=config.scheduler_tick_ms / 1000,
        record_metric=record_metric,
    )
    event_writer = None
    if config.events_max_len_or_zero:
        max_len, stores_results = config.events_max_len_or_zero, config.result_ttl_ms_or_zero > 0
        event_writer = EventWriter(broker, shared, max_len=max_len, stores_results=stores_results)
    stops = JobStops(config.timeout)
    reporter = JobReporter(
        broker,
        kept_ms=config.result_ttl_ms_or_zero or defaults.RESULT_TTL_MS,
        emit=None if event_writer is None else event_writer.write_or_drop_events_behind_active,
        stops=stops,
    )

    mover = FailedJobMover(
        broker,
        shared,
        dlq_max_len=config.dlq_max_stream_len,
        on_rescheduled=promoter.apply_or_publish_due_hint_if_needed,
        event_writer=event_writer,
        metrics=metrics,
        events_max_len=config.events_max_len_or_zero,
    )
    acker = Acker(
        broker,
        shared,
        mover,
        event_writer=event_writer,
        metrics=metrics,
        result_ttl_ms=config.result_ttl_ms_or_zero,
    )
    # In the worker's context: a later line about many failures is not about the job with which the count began.
    failure_log = FailureLog(partial(asyncio.get_running_loop().call_later, context=copy_context()))
    failures = FailureHandler(
        consumer,
        max_attempts=config.max_attempts,
        policy=config.retry,
        failure_log=failure_log,
        stops=stops,
        queue_reschedule=acker.queue_reschedule,
        queue_bury=acker.queue_bury,
    )
    decoder = Decoder(
        max_payload_bytes=config.max_payload_bytes,
        max_attempts=config.max_attempts,
        on_rejected=failures.queue_bury_of_rejected,
        stops=stops,
        server_clock=ServerClock(broker),
        on_exhausted=logs.bind_job_to_call(config.queue_name, failures.queue_bury_of_exhausted),
        on_expired=logs.bind_job_to_call(config.queue_name, failures.queue_bury_of_expired),
        on_cancelled=failures.queue_end_of_cancelled,
    )
    lanes = (Lanes if is_async_handler(config.handler) else ThreadLanes)(
        wrap_handler(config, connector.first_host_and_port, reporter, stops),
        shared,
        on_start=None if event_writer is None else event_writer.queue_active_event,
        on_done=acker.queue_ack,
        on_failed=logs.bind_job_to_call(config.queue_name, failures.log_error_and_queue_outcome),
        decode_or_settle=decoder.decode_or_settle_put_off_job,
        is_abandoned=is_abandoned,
    )

    find_task = lanes.get_lane_task if isinstance(lanes, Lanes) else lanes.find_coroutine_task
    run_watch = RunWatch(shared, stops, find_task, on_unstarted=failures.queue_end_of_cancelled)

    recovery = GroupRecovery(group, consumer, lease_ms, shared.holdings)
    prefetch = Prefetch(
        shared,
        lanes,
        max_bytes=config.prefetch_bytes,
        max_entry_bytes=config.max_payload_bytes + limits.ENTRY_EXTRA_BYTES,
    )
    intake = Intake(shared, lanes, decoder, recovery, prefetch, on_batch=record_metric)
    releaser = Releaser(broker, shared, lanes)
    orphans = Orphans(broker, shared, intake, prefetch, releaser)
    reclaimer = Reclaimer(
        broker,
        shared,
        intake=intake,
        prefetch=prefetch,
        orphans=orphans,
        recovery=recovery,
        claim_min_idle_ms=config.claim_min_idle_ms,
        lease_s=lease_ms / 1000,
    )
    reader = Reader(
        reading,
        shared,
        ReadLimits(config.read_block_ms, max(2 * config.prefetch_bytes, FEWEST_REPLY_BYTES)),  # twice what is expected
        helper=broker,
        intake=intake,
        prefetch=prefetch,
        pending=PendingEntries(shared, intake=intake, prefetch=prefetch, orphans=orphans, reclaimer=reclaimer),
        releaser=releaser,
    )

    thread = LoopThread("heartbeat", on_death)
    round_trips = RoundTrips(renewing, consumer, shared.lease, lease_ms)
    loop_watch = LoopWatch(
        consumer, shared.holdings, call_soon_in_worker_loop_if_running=thread.call_soon_in_worker_loop_if_running
    )
    queue_watch = QueueWatch(
        renewing,
        on_pause=partial(thread.call_soon_in_worker_loop_if_running, reader.pause_or_resume_reading),
        on_cancellations=partial(thread.call_soon_in_worker_loop_if_running, run_watch.set_cancellations_and_stop_jobs),
    )
    renewal = LeaseRenewal(
        renewing,
        shared,
        RenewalTimes(lease_ms, config.renew_interval_s, config.renew_hold_interval_s),
        lanes=lanes,
        recovery=recovery,
        queue_watch=queue_watch,
        record_maker=RecordMaker(shared, lease_ms=lease_ms),
        round_trips=round_trips,
        call_soon_in_worker_loop_if_running=thread.call_soon_in_worker_loop_if_running,
    )
    heartbeat = Heartbeat(
        renewing,
        shared,
        renewal,
        thread=thread,
        loop_watch=loop_watch,
        queue_watch=queue_watch,
        registry_writer=RegistryWriter(renewing),
    )
    health = HealthCheck(
        shared,
        (broker, reading, renewing),
        recovery=recovery,
        round_trips=round_trips,
        loop_watch=loop_watch,
        promoter=promoter,
        scheduler=scheduler,
        event_writer=event_writer,
        metrics=metrics,
    )
    return Components(
        shared=shared,
        broker=broker,
        reading=reading,
        metrics=metrics,
        promoter=promoter,
        scheduler=scheduler,
        event_writer=event_writer,
        reporter=reporter,
        acker=acker,
        failure_log=failure_log,
        lanes=lanes,
        threads=lanes if isinstance(lanes, ThreadLanes) else None,
        run_watch=run_watch,
        recovery=recovery,
        prefetch=prefetch,
        intake=intake,
        releaser=releaser,
        orphans=orphans,
        reclaimer=reclaimer,
        reader=reader,
        heartbeat=heartbeat,
        health=health,
    )
