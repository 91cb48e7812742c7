"""Worker: builds the parts, starts them, drains and stops them in order."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import signal
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from uuid import uuid4

from . import config
from ._engine.acker import Acker
from ._engine.lanes import Lanes
from ._engine.reader import Reader
from ._place import Place
from ._redis.broker import Broker
from ._redis.endpoint import CredentialProvider
from ._redis.keys import Keys
from ._redis.remedies import Remedy, remedy_for
from .errors import Closed, InvalidType, RedisTrouble
from .job import Job

Handler = Callable[[Job], Awaitable[Any]] | Callable[[Job], Any]
log = logging.getLogger("chasqui.worker")


class Worker:
    """Runs a queue's jobs: `await worker.run()` until it is closed, or `async with worker:` beside other things.

    handler            called with each Job; `async def`, or a plain function, which then runs in a thread
    concurrency        how many handlers may run at the same time
    shutdown_deadline_s  how long close() waits for handlers that are running before it cancels them
    """

    def __init__(
        self,
        queue_name: str,
        handler: Handler,
        *,
        redis_url: str = config.REDIS_URL,
        tls: bool = False,
        concurrency: int = config.CONCURRENCY,
        group: str = config.GROUP,
        consumer_id: str | None = None,
        read_block_ms: int = config.READ_BLOCK_MS,
        read_count: int = config.READ_COUNT,
        max_payload_bytes: int = config.MAX_PAYLOAD_BYTES,
        shutdown_deadline_s: float = config.SHUTDOWN_DEADLINE_S,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        if not callable(handler):
            raise InvalidType(f"handler must be a function that takes a job, not {type(handler).__name__} {handler!r}"[:300])
        self.queue_name = config.check_queue_name(queue_name)
        self.consumer_id = consumer_id or f"c-{uuid4()}"
        self._handler = handler
        self._concurrency = config.check_int("concurrency", concurrency, 1)
        self._group = group
        self._block_ms = config.check_int("read_block_ms", read_block_ms, 1)
        self._read_count = config.check_int("read_count", read_count, 1)
        self._max_payload_bytes = config.check_int("max_payload_bytes", max_payload_bytes, 1)
        self._shutdown_deadline_s = config.check_seconds("shutdown_deadline_s", shutdown_deadline_s)
        self._place = Place(
            redis_url, tls=tls, client_name=f"chasqui-worker-{queue_name}", credential_provider=credential_provider
        )
        self._main: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._stop_wanted: asyncio.Event | None = None
        self._hurry_wanted: asyncio.Event | None = None
        self._parts: _Parts | None = None
        self._signals_are_caught = False
        self._is_closed = False

    @property
    def name(self) -> str:
        return self.queue_name

    @property
    def is_running(self) -> bool:
        return self._main is not None and not self._main.done()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def run(self) -> None:
        """Run jobs until close(), SIGINT or SIGTERM. A second call waits for the first."""
        main = self._begin()
        signals = self._catch_signals()
        try:
            await asyncio.shield(main)
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            for number in signals:
                asyncio.get_running_loop().remove_signal_handler(number)

    async def close(self) -> None:
        """Stop reading, let what is held finish up to the deadline, ack it, and let go. Safe twice."""
        self._is_closed = True
        if self._main is None or self._stop_wanted is None:
            return
        self._stop_wanted.set()
        # A handler that closes its own worker must not wait for itself.
        if self._parts is None or not self._parts.lanes.is_lane(asyncio.current_task()):
            await asyncio.wait({self._main})

    async def __aenter__(self) -> Worker:
        main = self._begin()
        assert self._started is not None
        await asyncio.wait({main, self._started}, return_when=asyncio.FIRST_COMPLETED)
        if main.done():
            main.result()
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
                raise Closed(f"worker of queue {self.queue_name!r} is closed; make a new one")
            self._stop_wanted, self._hurry_wanted = asyncio.Event(), asyncio.Event()
            self._started = asyncio.get_running_loop().create_future()
            self._main = asyncio.create_task(self._live(), name=f"chasqui worker {self.queue_name}")
        return self._main

    async def _live(self) -> None:
        """The worker's life, in the order that loses nothing."""
        assert self._stop_wanted is not None and self._started is not None
        parts = self._parts = self._build()
        try:
            await self._join_group(parts.broker)
            parts.lanes.start()
            parts.acker.start()
            parts.reader.start()
            self._started.set_result(None)
            log.info("worker %s runs queue %s with %d lanes", self.consumer_id, self.queue_name, self._concurrency)
            await self._stop_wanted.wait()
            await parts.reader.stop(helper=parts.broker)  # first, so that nothing new comes in
            await self._drain(parts.lanes)
            await parts.lanes.stop()
            await parts.acker.stop()  # after the lanes, so that all that has finished is acked
            await self._leave_group(parts.broker)
            log.info("worker %s has stopped", self.consumer_id)
        finally:
            self._is_closed = True
            await parts.close()
            self._place.leave()

    def _build(self) -> _Parts:
        keys = Keys(self.queue_name)
        broker = Broker(self._place.connection(timeout_s=config.ADD_TIMEOUT_S), keys)
        # A blocked read would hold up whatever is sent behind it, so the reader has a connection of its own.
        reading = Broker(self._place.connection(timeout_s=config.ADD_TIMEOUT_S), keys)
        threads = None if _is_async(self._handler) else ThreadPoolExecutor(self._concurrency, "chasqui-lane")
        acker = Acker(broker, self._group)
        lanes = Lanes(
            self._handler if threads is None else _in_threads(self._handler, threads),
            self._concurrency,
            on_done=acker.done,
            on_failed=self._on_failed,
        )
        reader = Reader(
            reading,
            self._group,
            self.consumer_id,
            lanes=lanes,
            read_count=self._read_count,
            block_ms=self._block_ms,
            max_payload_bytes=self._max_payload_bytes,
            on_rejected=self._on_rejected,
        )
        lanes.on_room = reader.wake
        return _Parts(broker, reading, acker, lanes, reader, threads)

    async def _join_group(self, broker: Broker) -> None:
        """Wait for a Redis that is away; raise for one that will never do."""
        assert self._stop_wanted is not None
        pause = 0.0
        while not self._stop_wanted.is_set():
            try:
                return await broker.ensure_group(self._group)
            except RedisTrouble as error:
                if remedy_for(error) in (Remedy.FATAL, Remedy.LOCKED):
                    raise
                if not pause:
                    log.warning("worker %s waits for Redis: %s", self.consumer_id, error)
                pause = min(max(pause * 2, 0.05), 1.0)
                await asyncio.sleep(pause)

    async def _drain(self, lanes: Lanes) -> None:
        """Let what is held finish, until the deadline or a second signal."""
        assert self._hurry_wanted is not None
        waits = {asyncio.ensure_future(lanes.drain()), asyncio.ensure_future(self._hurry_wanted.wait())}
        await asyncio.wait(waits, timeout=self._shutdown_deadline_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)

    async def _leave_group(self, broker: Broker) -> None:
        """Take the consumer's name out of the group, unless it still holds entries: they would go with it."""
        try:
            if not await broker.pending(self._group, self.consumer_id):
                await broker.drop_consumer(self._group, self.consumer_id)
        except RedisTrouble as error:
            log.info("worker %s leaves its name in the group: %s", self.consumer_id, error)

    def _catch_signals(self) -> list[int]:
        """First signal: drain and stop. Second: stop now. Only where signals can be caught: in the main thread."""
        if threading.current_thread() is not threading.main_thread() or self._signals_are_caught:
            return []
        self._signals_are_caught = True
        loop = asyncio.get_running_loop()
        caught = []
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, self._on_signal, number)
            except NotImplementedError:  # Windows
                break
            caught.append(int(number))
        return caught

    def _on_signal(self, number: int) -> None:
        assert self._stop_wanted is not None and self._hurry_wanted is not None
        if self._stop_wanted.is_set():
            log.warning("second signal: stopping now, unfinished jobs will run again elsewhere")
            self._hurry_wanted.set()
        else:
            log.info("%s: finishing what is held, a second signal stops at once", signal.Signals(number).name)
            self._stop_wanted.set()

    def _on_failed(self, job: Job, error: BaseException) -> None:
        log.error("job %s (%s) failed: %r", job.id, job.name, error, exc_info=error)

    def _on_rejected(self, entry_id: bytes, fields: list[bytes] | None, reason: str, detail: str) -> None:
        log.error("entry %s cannot be run: %s (%s)", entry_id.decode(), reason, detail)


@dataclass(frozen=True)
class _Parts:
    broker: Broker
    reading: Broker
    acker: Acker
    lanes: Lanes
    reader: Reader
    threads: ThreadPoolExecutor | None

    async def close(self) -> None:
        await self.reading.connection.close()
        await self.broker.connection.close()
        if self.threads is not None:
            self.threads.shutdown(wait=False, cancel_futures=True)


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))


def _in_threads(handler: Handler, threads: ThreadPoolExecutor) -> Callable[[Job], Awaitable[Any]]:
    """A plain function as a handler that can be awaited; it sees the lane's context variables."""

    def run(job: Job) -> Awaitable[Any]:
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(threads, context.run, handler, job)

    return run
