"""Promoter and Scheduler as separate programs, for queues whose workers do not run them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import uuid4

from ._core import checks, defaults, limits
from ._core.pauses import GrowingPause
from ._redis.broker import Broker
from ._redis.connector import Connector
from ._redis.credentials import CredentialProvider
from ._redis.error_actions import ErrorAction, action_for
from ._redis.keys import Keys
from ._redis.repeatables import RepeatablesBroker
from ._worker import promoter, scheduler
from ._worker.lifecycle import Lifecycle
from ._worker.service import Service
from .errors import InvalidType, RedisTrouble
from .metrics import GuardedSinks, MetricsSink
from .settings import find_setting

log = logging.getLogger("chasqui.leaders")

CLOSING_S = 2.0


class _StandaloneLeader(Lifecycle):
    """Runs the worker's service of the same name as a program.

    lock_ttl_secs  how long it leads after its last renewal, at most 10: other processes cut a longer lease to that
    """

    _lease_ms: int

    def __init__(
        self,
        queue_name: str,
        *,
        redis_url: str | None = None,
        tls: bool = False,
        holder_id: str | None = None,
        metrics: MetricsSink | None = None,
        credential_provider: CredentialProvider | None = None,
        lock_ttl_secs: int | None = None,
    ) -> None:
        checks.check_queue_name(queue_name)
        kind = type(self).__name__
        client_name = f"chasqui-{kind.lower()}-{queue_name}"
        holder_id = f"{kind[0].lower()}-{uuid4()}" if holder_id is None else holder_id
        self.holder_id = checks.check_consumer_name("holder_id", holder_id)
        redis_url = find_setting("redis_url", redis_url).value
        connector = Connector(redis_url, tls=tls, client_name=client_name, credential_provider=credential_provider)
        super().__init__(kind, queue_name, connector)
        self._record_metric = None if metrics is None else GuardedSinks([metrics]).record
        lease_ms = 1000 * checks.check_int("lock_ttl_secs", lock_ttl_secs, 1, default=self._lease_ms // 1000 or 1)
        if lock_ttl_secs is not None:
            self._lease_ms = min(lease_ms, limits.MAX_LEADER_LEASE_MS)

    def _make_service(self, broker: Broker, keys: Keys) -> Service:
        raise NotImplementedError

    def _log_death_and_stop(self, title: str, error: BaseException) -> None:
        log.critical("the %s of queue %s has failed; the program ends", title, self.queue_name, exc_info=error)
        self._request_stop_with_error(error)

    async def _run_until_stopped(self) -> None:
        keys = Keys(self.queue_name)
        broker = self._connector.make_broker(keys, timeout_s=limits.WORK_TIMEOUT_S)
        service = self._make_service(broker, keys)
        finding: asyncio.Task[None] | None = None
        try:
            if not await self._try_to_reach_redis(broker):
                finding = asyncio.create_task(self._wait_for_redis_or_stop(broker))
            service.start()
            self._report_started()
            await self._stop_wanted.wait()
            await service.end(timeout_s=CLOSING_S)
        finally:
            if finding is not None:
                finding.cancel()
                await asyncio.wait({finding})
            await broker.close()

    async def _wait_for_redis_or_stop(self, broker: Broker) -> None:
        """Until Redis answers for the first time, a permanent error ends the program, as it ends a worker's start."""
        pause = GrowingPause()
        try:
            while not await self._try_to_reach_redis(broker):  # noqa: ASYNC110  only Redis knows
                await asyncio.sleep(pause.lengthen_pause_s())
        except RedisTrouble as error:
            self._request_stop_with_error(error)

    async def _try_to_reach_redis(self, broker: Broker) -> bool:
        """False while Redis is unreachable; raises permanent errors."""
        try:
            await broker.read_server_time_ms()
        except RedisTrouble as error:
            if action_for(error) in (ErrorAction.FATAL, ErrorAction.REAUTHENTICATE):
                raise
            return False
        return True


class Promoter(_StandaloneLeader):
    """Moves due delayed jobs to the stream. Every worker contains one; one of all that run leads.

    poll_interval_ms       how often to look for due jobs while any are delayed: official producers do not notify it
    promote_batch          how many jobs one call moves, up to 500 while it also writes events
    events_enabled         whether to write a waiting event for each job
    events_max_stream_len  about how many events the event stream keeps
    """

    def __init__(
        self,
        queue_name: str,
        *,
        poll_interval_ms: int | None = None,
        promote_batch: int | None = None,
        events_enabled: bool = True,
        events_max_stream_len: int = defaults.EVENTS_MAX_LEN,
        **options: Any,
    ) -> None:
        self._lease_ms = limits.PROMOTER_LEASE_MS
        super().__init__(queue_name, **options)
        every_ms = int(1000 * limits.PROMOTE_EVERY_S)
        self._every_s = checks.check_int("poll_interval_ms", poll_interval_ms, 10, 60_000, default=every_ms) / 1000
        self._batch = checks.check_int("promote_batch", promote_batch, 1, default=limits.PROMOTE_BATCH)
        max_len = checks.check_int("events_max_stream_len", events_max_stream_len, 1)
        self._events_max_len = max_len if checks.check_bool("events_enabled", events_enabled) else 0

    def _make_service(self, broker: Broker, keys: Keys) -> Service:
        return promoter.PromoterService(
            broker,
            self.holder_id,
            on_death=self._log_death_and_stop,
            events_max_len=self._events_max_len,
            every_s=self._every_s,
            batch=self._batch,
            lease_ms=self._lease_ms,
            record_metric=self._record_metric,
        )


class Scheduler(_StandaloneLeader):
    """Fires due repeatables. Every worker contains one; one of all that run leads.

    It takes (queue_name, redis_url=...), and (redis_url, queue_name) as the official one does.

    tick_interval_ms  how often to look for repeatables that it was not notified of
    batch             how many repeatables one call reads; all due ones are fired
    lock_ttl_secs     how long it leads after its last renewal, at most 10: other processes cut a longer lease to that
    max_stream_len    has no effect: the stream is never trimmed
    """

    def __init__(
        self,
        *names: str,
        queue_name: str | None = None,
        redis_url: str | None = None,
        tick_interval_ms: int | None = None,
        batch: int | None = None,
        max_stream_len: int | None = None,
        lock_ttl_secs: int | None = None,
        **options: Any,
    ) -> None:
        if len(names) == 2:
            redis_url, queue_name = names
        elif len(names) == 1 and queue_name is None:
            (queue_name,) = names
        elif len(names) == 1:
            (redis_url,) = names
        if len(names) > 2 or queue_name is None:
            raise InvalidType("Scheduler takes a queue_name and a redis_url")
        checks.check_int("max_stream_len", max_stream_len, 0, default=0)
        self._lease_ms = limits.SCHEDULER_LEASE_MS
        super().__init__(queue_name, redis_url=redis_url, lock_ttl_secs=lock_ttl_secs, **options)
        self._batch = checks.check_int("batch", batch, 1, 10_000, default=scheduler.BATCH)
        self._tick_ms = checks.check_int(
            "tick_interval_ms", tick_interval_ms, 10, limits.MAX_TICK_MS, default=defaults.SCHEDULER_TICK_MS
        )

    def _make_service(self, broker: Broker, keys: Keys) -> Service:
        return scheduler.SchedulerService(
            RepeatablesBroker(broker, keys),
            self.holder_id,
            on_death=self._log_death_and_stop,
            tick_s=self._tick_ms / 1000,
            batch=self._batch,
            lease_ms=self._lease_ms,
            record_metric=self._record_metric,
        )
