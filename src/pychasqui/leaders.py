"""Promoter and Scheduler as programs of their own, for queues whose workers do not bring them along."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

from . import config
from ._engine import promoter, scheduler
from ._engine.service import Service
from ._place import Place
from ._program import Program
from ._redis.broker import Broker
from ._redis.endpoint import CredentialProvider
from ._redis.keys import Keys
from ._redis.repeats import RepeatBroker
from .sinks import GuardedSinks, MetricsSink

log = logging.getLogger("chasqui.leaders")

CLOSING_S = 2.0


class _Leader(Program):
    """A program around the engine's part of the same name."""

    def __init__(
        self,
        queue_name: str,
        *,
        redis_url: str = config.REDIS_URL,
        tls: bool = False,
        holder_id: str | None = None,
        metrics: MetricsSink | None = None,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        config.check_queue_name(queue_name)
        kind = type(self).__name__
        client_name = f"chasqui-{kind.lower()}-{queue_name}"
        holder_id = f"{kind[0].lower()}-{uuid4()}" if holder_id is None else holder_id
        self.holder_id = config.check_consumer_name("holder_id", holder_id)
        place = Place(redis_url, tls=tls, client_name=client_name, credential_provider=credential_provider)
        super().__init__(kind, queue_name, place)
        self._tell = None if metrics is None else GuardedSinks([metrics]).tell

    def _service(self, broker: Broker, keys: Keys) -> Service:
        raise NotImplementedError

    def _on_death(self, title: str, error: BaseException) -> None:
        log.critical("the %s of queue %s has died", title, self.queue_name, exc_info=error)
        self._die_of(error)

    async def _live(self) -> None:
        keys = Keys(self.queue_name)
        broker = Broker(self._place.connection(timeout_s=config.WORK_TIMEOUT_S), keys)
        service = self._service(broker, keys)
        service.on_death = self._on_death
        try:
            service.start()
            self._has_started()
            await self._stop_wanted.wait()
            await service.end(patience_s=CLOSING_S)
        finally:
            await broker.connection.close()


class Promoter(_Leader):
    """Moves due delayed jobs to the stream. Every worker has one inside; of all that run, one leads.

    events_enabled  whether to write that they are waiting now, to an event stream of about events_max_stream_len events
    """

    def __init__(
        self,
        queue_name: str,
        *,
        events_enabled: bool = True,
        events_max_stream_len: int = config.EVENTS_MAX_LEN,
        **options: Any,
    ) -> None:
        super().__init__(queue_name, **options)
        max_len = config.check_int("events_max_stream_len", events_max_stream_len, 1)
        self._events_max_len = max_len if config.check_bool("events_enabled", events_enabled) else 0

    def _service(self, broker: Broker, keys: Keys) -> Service:
        return promoter.Promoter(broker, self.holder_id, events_max_len=self._events_max_len, tell=self._tell)


class Scheduler(_Leader):
    """Fires due repeatables. Every worker has one inside; of all that run, one leads.

    tick_interval_ms  how often to look for repeatables that it has not heard of
    """

    def __init__(self, queue_name: str, *, tick_interval_ms: int | None = None, **options: Any) -> None:
        super().__init__(queue_name, **options)
        self._tick_ms = config.check_int(
            "tick_interval_ms", tick_interval_ms, 10, config.MAX_TICK_MS, default=config.SCHEDULER_TICK_MS
        )

    def _service(self, broker: Broker, keys: Keys) -> Service:
        tick_s = self._tick_ms / 1000
        return scheduler.Scheduler(RepeatBroker(broker, keys), self.holder_id, tick_s=tick_s, tell=self._tell)
