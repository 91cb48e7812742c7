"""QueueEvents: what happens in a queue, as it happens, for any process that wants to know.

The events are a stream that the workers write. A subscriber remembers the last one it has seen and asks for what comes
after it, so a lost connection costs no event that the stream still holds.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from types import TracebackType
from typing import Any, Self

from ._core import checks, defaults
from ._core.printable import printable
from ._redis.connector import Connector
from ._redis.endpoint import CredentialProvider
from ._redis.error_actions import ErrorAction, action_for
from ._redis.events import EventsBroker
from ._redis.keys import Keys
from ._wire.event import QueueEvent, read_event
from ._wire.lenient import read_entry_id
from ._worker.outage import Outage
from .errors import Closed, InvalidArgument, InvalidType, RedisTrouble

__all__ = ["QueueEvent", "QueueEvents"]

log = logging.getLogger("chasqui.events")

_EVENT_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")

Callback = Callable[[QueueEvent], Awaitable[None]] | Callable[[QueueEvent], None]


class QueueEvents:
    """`async for event in events`, or callbacks: `events.on("completed", f)` and `await events.run()`.

    last_event_id  where to begin: "$" with what happens from now on, "0" with the oldest that is still there
    names, job_ids only these kinds of events, only events of these jobs
    """

    def __init__(
        self,
        queue_name: str,
        *,
        redis_url: str = defaults.REDIS_URL,
        tls: bool = False,
        last_event_id: str = "$",
        block_ms: int = defaults.READ_BLOCK_MS,
        count: int = 100,
        names: Collection[str] | None = None,
        job_ids: Collection[str] | None = None,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        self.queue_name = checks.check_queue_name(queue_name)
        self._after = _check_event_id(last_event_id)
        self._block_ms = checks.check_int("block_ms", block_ms, 1)
        self._count = checks.check_int("count", count, 1)
        self._names = _check_filter("names", names)
        self._job_ids = _check_filter("job_ids", job_ids)
        self._connector: Connector | None = Connector(
            redis_url, tls=tls, client_name=f"chasqui-events-{queue_name}", credential_provider=credential_provider
        )
        # A blocked read keeps its connection to itself, so each read is bounded by its block and a bit.
        keys = Keys(queue_name)
        broker = self._connector.broker(keys, timeout_s=self._block_ms / 1000 + 2.0)
        self._read_from(EventsBroker(broker, keys))

    def _read_from(self, broker: EventsBroker) -> None:
        self._broker = broker
        self._inbox: deque[QueueEvent] = deque()
        self._callbacks: list[tuple[str | None, Callback]] = []
        self._reading: asyncio.Task[Any] | None = None
        self._is_closed = False
        self._has_read = False
        self._outage = Outage(
            f"the events of {self.queue_name} cannot be read", f"the events of {self.queue_name} are read again"
        )

    @classmethod
    def over(cls, broker: EventsBroker, queue_name: str) -> QueueEvents:
        """Read through a broker that the caller has made; close() closes it."""
        events = cls(queue_name, count=1000)
        events._connector = None
        events._read_from(broker)
        return events

    @property
    def name(self) -> str:
        """The queue's, as the official package calls it."""
        return self.queue_name

    @property
    def last_event_id(self) -> str:
        """The last event that was read; "$" before the first read."""
        return self._after

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def on(self, name: str | None, callback: Callback) -> None:
        """Have run() call `callback` with each event of that kind; None for all kinds."""
        if name is not None and not isinstance(name, str):
            raise InvalidType(f"name must be a str or None, not {type(name).__name__} {name!r}"[:300])
        if not callable(callback):
            raise InvalidType(f"callback must be a function that takes an event, not {callback!r}"[:300])
        self._callbacks.append((name, callback))

    async def run(self) -> None:
        """Call the callbacks until close(). One that raises is reported and harms nobody."""
        async for event in self:
            for name, callback in self._callbacks:
                if name is None or name == event.name:
                    await _call(callback, event)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> QueueEvent:
        while not self._inbox:
            if self._is_closed:
                raise StopAsyncIteration
            # It outlives a caller that gives up: the server answers it all the same, and the next caller waits for it.
            if self._reading is None or self._reading.done():
                self._reading = asyncio.ensure_future(self._read())
            reading = self._reading
            await asyncio.wait({reading})
            if self._reading is reading:
                self._reading = None
            if not reading.cancelled():
                reading.result()
        return self._inbox.popleft()

    def take_ready(self) -> list[QueueEvent]:
        """The events that were read together with the last one."""
        ready = list(self._inbox)
        self._inbox.clear()
        return ready

    async def close(self) -> None:
        """End the iteration and let go of the connection. Safe twice."""
        self._is_closed = True
        if self._reading is not None:
            self._reading.cancel()
        await self._broker.close()
        if self._connector is not None:
            self._connector.leave()

    async def __aenter__(self) -> Self:
        if self._is_closed:
            raise Closed(f"the events of queue {self.queue_name!r} are closed; make new ones")
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Settle where "$" is, so that nothing that happens from now on is missed. The first read does it, too."""
        if self._after == "$":
            self._after = await self._broker.last_event_id()

    async def _read(self) -> None:
        """Fill the inbox, or find that nothing has happened."""
        try:
            await self.start()
            entries = await self._broker.read_events(self._after, self._count, self._block_ms)
        except RedisTrouble as error:
            # One who has read before goes on: somebody has put another thing in the stream's place, or taken rights
            # away, and may bring them back.
            if action_for(error) is ErrorAction.FATAL and not self._has_read and not self._outage.is_on:
                raise
            await asyncio.sleep(self._outage.pause_after(error))
            return
        self._outage.end()
        self._has_read = True
        if not entries:
            await self._follow_a_new_stream()
        for entry in entries:
            self._after = entry[0].decode()
            event = read_event(entry)
            if self._is_wanted(event):
                self._inbox.append(event)

    async def _follow_a_new_stream(self) -> None:
        """Go to the beginning of a stream that has begun behind the last event: it is not the one that was read.

        Somebody has removed that one. Its last id may have lain in the future, and no event would ever come after it.
        """
        try:
            last = await self._broker.last_generated_id()
        except RedisTrouble:  # the next read meets the same trouble, or this user may not ask
            return
        if last is not None and read_entry_id(last) < read_entry_id(self._after):
            log.warning("the events of %s begin again at %s, before %s", self.queue_name, last, self._after)
            self._after = "0-0"

    def _is_wanted(self, event: QueueEvent) -> bool:
        return (self._names is None or event.name in self._names) and (
            self._job_ids is None or event.job_id in self._job_ids
        )


async def _call(callback: Callback, event: QueueEvent) -> None:
    try:
        answer = callback(event)
        if inspect.isawaitable(answer):
            await answer
    except Exception:
        log.exception("a callback for events named %r has failed", printable(event.name))


def _check_event_id(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidType(f"last_event_id must be a str, not {type(value).__name__} {value!r}"[:300])
    if value != "$" and not _EVENT_ID.fullmatch(value):
        raise InvalidArgument(f'last_event_id {value[:100]!r} must be "$", "0" or the id of an event')
    return value


def _check_filter(field: str, value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Collection) or not all(isinstance(one, str) for one in value):
        raise InvalidType(f"{field} must be a collection of strs, not {value!r}"[:300])
    return frozenset(value)
