"""QueueEvents: reads the events of a queue as they happen, in any process.

Workers write the events to a stream. A reader remembers the last event it has seen and reads from there, so a lost
connection loses no event that is still in the stream.
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
from ._redis.credentials import CredentialProvider
from ._redis.error_actions import ErrorAction, action_for
from ._redis.events import EventsBroker
from ._redis.keys import Keys
from ._wire.event import QueueEvent, read_event
from ._wire.lenient import read_entry_id
from ._worker.outage import Outage
from ._worker.task_loops import has_ended_or_lost_its_loop, refuse_other_loop
from .errors import Closed, InvalidArgument, InvalidType, RedisTrouble
from .settings import find_setting

__all__ = ["QueueEvent", "QueueEvents"]

log = logging.getLogger("chasqui.events")

MAX_REMEMBERED_IDS = 1000
PAST_IDS_AT_START = 100
_EVENT_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")

Callback = Callable[[QueueEvent], Awaitable[None]] | Callable[[QueueEvent], None]


class QueueEvents:
    """`async for event in events`, or callbacks: `events.on("completed", f)` and `await events.run()`.

    last_event_id  where to begin: "$" at the next event, "0" at the oldest that is kept, or after the event of this id
    block_ms       how long one read waits for events
    count          how many events one read returns
    names          read only events of these kinds
    job_ids        read only events of these jobs
    """

    def __init__(
        self,
        queue_name: str,
        *,
        redis_url: str | None = None,
        tls: bool = False,
        last_event_id: str = "$",
        block_ms: int = defaults.READ_BLOCK_MS,
        count: int = 100,
        names: Collection[str] | None = None,
        job_ids: Collection[str] | None = None,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        self._check_and_set_what_to_read(queue_name, last_event_id, block_ms, count, names, job_ids)
        self._connector: Connector | None = Connector(
            find_setting("redis_url", redis_url).value,
            tls=tls,
            client_name=f"chasqui-events-{queue_name}",
            credential_provider=credential_provider,
        )
        # A blocked read holds its connection, so the timeout is the blocking time and two seconds more.
        keys = Keys(queue_name)
        broker = self._connector.make_broker(keys, timeout_s=self._block_ms / 1000 + 2.0)
        self._set_broker_and_initial_state(EventsBroker(broker, keys))

    def _check_and_set_what_to_read(
        self,
        queue_name: str,
        last_event_id: str = "$",
        block_ms: int = defaults.READ_BLOCK_MS,
        count: int = 1000,
        names: Collection[str] | None = None,
        job_ids: Collection[str] | None = None,
    ) -> None:
        self.queue_name = checks.check_queue_name(queue_name)
        self._after = _check_event_id(last_event_id)
        self._block_ms = checks.check_int("block_ms", block_ms, 1)
        self._count = checks.check_int("count", count, 1)
        self._names = _check_filter("names", names)
        self._job_ids = _check_filter("job_ids", job_ids)

    def _set_broker_and_initial_state(self, broker: EventsBroker) -> None:
        self._broker = broker
        self._inbox: deque[QueueEvent] = deque()
        self._past_ids: deque[str] = deque(maxlen=MAX_REMEMBERED_IDS)  # of the last events that it does not read again
        self._callbacks: list[tuple[str | None, Callback]] = []
        self._reading: asyncio.Task[Any] | None = None
        self._is_closed = False
        self._has_read = False
        self._outage = Outage(
            f"the events of {self.queue_name} cannot be read", f"the events of {self.queue_name} are read again"
        )

    @classmethod
    def from_broker(cls, broker: EventsBroker, queue_name: str) -> QueueEvents:
        """Makes a QueueEvents that reads through the caller's broker; close() closes the broker."""
        events = cls.__new__(cls)  # not by its constructor, which needs the URL of a server
        events._check_and_set_what_to_read(queue_name)
        events._connector = None
        events._set_broker_and_initial_state(broker)
        return events

    @property
    def name(self) -> str:
        """The queue's name, as the official package calls it."""
        return self.queue_name

    @property
    def _label(self) -> str:
        return f"QueueEvents of queue {self.queue_name!r}"

    @property
    def last_event_id(self) -> str:
        """After which event it reads on: the last one that was read, or where it begins; "$" until that is found."""
        return self._after

    @property
    def is_closed(self) -> bool:
        """Whether close() was called."""
        return self._is_closed

    def on(self, name: str | None, callback: Callback) -> None:
        """Registers a callback, which run() calls with each event of this kind; `name` None stands for all kinds."""
        if name is not None and not isinstance(name, str):
            raise InvalidType(f"name must be a str or None, not {type(name).__name__} {name!r}"[:300])
        if not callable(callback):
            raise InvalidType(f"callback must be a function that takes an event, not {callback!r}"[:300])
        self._callbacks.append((name, callback))

    async def run(self) -> None:
        """Calls the callbacks until close(). The error of a callback is logged, and the next event follows."""
        async for event in self:
            for name, callback in self._callbacks:
                if name is None or name == event.name:
                    await _run_callback_and_log_error(callback, event)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> QueueEvent:
        while not self._is_closed:
            if self._inbox:
                return self._inbox.popleft()
            # The read outlives a caller that is cancelled: the server answers it anyway, and the next caller awaits it.
            if self._reading is None or has_ended_or_lost_its_loop(self._reading):
                self._reading = asyncio.ensure_future(self._read_into_inbox_or_pause())
            reading = self._reading
            refuse_other_loop(reading, self._label)
            await asyncio.wait({reading})
            if self._reading is reading:
                self._reading = None
            if not reading.cancelled():
                reading.result()
        raise StopAsyncIteration

    def take_ready(self) -> list[QueueEvent]:
        """Takes the events that were read together with the last one, without waiting."""
        ready = list(self._inbox)
        self._inbox.clear()
        return ready

    async def close(self) -> None:
        """Ends the iteration and closes the connection. Safe to call twice."""
        if self._reading is not None and not has_ended_or_lost_its_loop(self._reading):
            refuse_other_loop(self._reading, self._label)
            self._reading.cancel()
        self._is_closed = True
        await self._broker.close()
        if self._connector is not None:
            self._connector.leave_embedded_server_and_stop_logging()

    async def __aenter__(self) -> Self:
        if self._is_closed:
            raise Closed(f"{self._label} is closed; make a new one")
        try:
            await self.start()
        except BaseException:
            await self.close()  # no __aexit__ follows, and its connection would be tried for ever
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Finds the position of "$", so that no event from now on is missed. The first read does this as well."""
        if self._after == "$":
            past_ids = [entry[0].decode() for entry in await self._broker.read_newest_events(PAST_IDS_AT_START)]
            self._past_ids.extend(past_ids)
            self._after = past_ids[-1] if past_ids else "0-0"

    async def _read_into_inbox_or_pause(self) -> None:
        """Reads events into the inbox; it may stay empty."""
        try:
            await self.start()
            entries = await self._broker.read_or_wait_for_events(self._after, self._count, self._block_ms)
        except RedisTrouble as error:
            # A reader that has read before goes on: the stream's key was overwritten or its rights were revoked, and
            # both may be undone.
            if action_for(error) is ErrorAction.FATAL and not self._has_read and not self._outage.is_on:
                raise
            await asyncio.sleep(self._outage.record_error_and_choose_pause_s(error))
            return
        self._outage.end()
        self._has_read = True
        if not entries:
            await self._move_back_if_stream_ends_before()
        for entry in entries:
            self._after = entry[0].decode()
            self._past_ids.append(self._after)
            event = read_event(entry)
            if self._is_wanted(event):
                self._inbox.append(event)

    async def _move_back_if_stream_ends_before(self) -> None:
        """Moves back if the stream's last id is before the last event that was read.

        Without this, no event would be read until ids pass that one. A failover has lost the last events: then it goes
        on behind the newest one that is left of those that it has read. Or the stream was deleted and made again, and
        is read from its start.
        """
        try:
            last = await self._broker.read_last_generated_id()
            if last is None or read_entry_id(last) >= read_entry_id(self._after):
                return
            newest = await self._broker.read_newest_events(MAX_REMEMBERED_IDS)
        except RedisTrouble:  # the next read gets the same error, or this user may not send the command
            return
        past_ids = set(self._past_ids)
        left = next((one for entry in reversed(newest) if (one := entry[0].decode()) in past_ids), None)
        log.warning(
            "the event stream of %s ends at %s, before %s; it is read from %s",
            self.queue_name,
            last,
            self._after,
            "its start, because it was made again" if left is None else f"{left} on, the last one that it still has",
        )
        self._after = left or "0-0"

    def _is_wanted(self, event: QueueEvent) -> bool:
        return (self._names is None or event.name in self._names) and (
            self._job_ids is None or event.job_id in self._job_ids
        )


async def _run_callback_and_log_error(callback: Callback, event: QueueEvent) -> None:
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
