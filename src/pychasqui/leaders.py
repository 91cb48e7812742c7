"""Promoter and Scheduler as programs of their own, for queues whose workers do not bring them along."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from . import config
from ._engine import promoter, scheduler
from ._engine.service import Service
from ._engine.signals import caught_signals
from ._place import Place
from ._redis.broker import Broker
from ._redis.endpoint import CredentialProvider
from ._redis.keys import Keys
from ._redis.repeats import RepeatBroker
from .errors import Closed
from .sinks import GuardedSinks, MetricsSink

log = logging.getLogger("chasqui.leaders")

CLOSING_S = 2.0


class _Leader:
    """`await run()` until it is closed, or `async with` beside other things."""

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
        self.queue_name = config.check_queue_name(queue_name)
        kind = type(self).__name__.lower()
        holder_id = f"{kind[0]}-{uuid4()}" if holder_id is None else holder_id
        self.holder_id = config.check_consumer_name("holder_id", holder_id)
        self._place = Place(
            redis_url, tls=tls, client_name=f"chasqui-{kind}-{queue_name}", credential_provider=credential_provider
        )
        self._tell = None if metrics is None else GuardedSinks([metrics]).tell
        self._main: asyncio.Task[None] | None = None
        self._stop_wanted: asyncio.Event | None = None
        self._death: BaseException | None = None
        self._is_closed = False

    def _service(self, broker: Broker, keys: Keys) -> Service:
        raise NotImplementedError

    @property
    def is_running(self) -> bool:
        return self._main is not None and not self._main.done()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def run(self) -> None:
        """Until close(), SIGINT or SIGTERM."""
        main = self._begin()
        with caught_signals(lambda _: self._ask_to_stop()):
            try:
                await asyncio.shield(main)
            except asyncio.CancelledError:
                await self.close()
                raise

    async def close(self) -> None:
        """Let go of the lease and the connection. Safe twice."""
        self._is_closed = True
        if self._main is not None:
            self._ask_to_stop()
            await asyncio.wait({self._main})

    async def __aenter__(self) -> Self:
        _ = self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if self._main is not None and error is None:
            self._main.result()

    def _begin(self) -> asyncio.Task[None]:
        if self._main is None:
            if self._is_closed:
                raise Closed(f"{type(self).__name__} of queue {self.queue_name!r} is closed; make a new one")
            self._stop_wanted = asyncio.Event()
            self._main = asyncio.create_task(self._live(), name=f"chasqui {type(self).__name__} {self.queue_name}")
        elif self._main.done():
            raise Closed(f"{type(self).__name__} of queue {self.queue_name!r} has ended; make a new one")
        return self._main

    def _ask_to_stop(self) -> None:
        assert self._stop_wanted is not None
        self._stop_wanted.set()

    def _on_death(self, title: str, error: BaseException) -> None:
        log.critical("the %s of queue %s has died", title, self.queue_name, exc_info=error)
        self._death = error
        self._ask_to_stop()

    async def _live(self) -> None:
        assert self._stop_wanted is not None
        keys = Keys(self.queue_name)
        broker = Broker(self._place.connection(timeout_s=config.WORK_TIMEOUT_S), keys)
        service = self._service(broker, keys)
        service.on_death = self._on_death
        try:
            service.start()
            await self._stop_wanted.wait()
            await service.end(patience_s=CLOSING_S)
        finally:
            self._is_closed = True
            await broker.connection.close()
            self._place.leave()
        if self._death is not None:
            raise self._death


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
    """Fires due repeatables. Every worker has one inside; of all that run, one leads."""

    def _service(self, broker: Broker, keys: Keys) -> Service:
        tick_s = config.SCHEDULER_TICK_MS / 1000
        return scheduler.Scheduler(RepeatBroker(broker, keys), self.holder_id, tick_s=tick_s, tell=self._tell)
