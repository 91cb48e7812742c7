"""What MemoryBroker has in memory, its hooks and its connection: see memory_broker.py."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

from pychasqui._redis.broker import Broker
from pychasqui._redis.cancellations import Cancellations
from pychasqui._wire.event import Event
from pychasqui.errors import ConnectionLost, ReplyError

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

LOST = ConnectionLost("the connection is lost")


class Call(NamedTuple):
    method: str
    arguments: tuple[Any, ...]
    thread: int  # where it was made


@dataclass
class Held:
    """An entry that a consumer holds."""

    consumer: str
    deliveries: int


@dataclass
class MemoryGroup:
    last_read: tuple[int, int] = (0, 0)
    pending: dict[bytes, Held] = field(default_factory=dict)


def make_sort_key(entry_id: bytes) -> tuple[int, int]:
    ms, _, sequence = entry_id.partition(b"-")
    return int(ms or 0), int(sequence or 0)


def with_hooks(method: F) -> F:
    """Record the call, and let the hooks come first."""

    @wraps(method)
    async def answer(self: MemoryState, *arguments: Any, **options: Any) -> Any:
        await self._send(method.__name__, *arguments, *options.values())
        self._raise_trouble(method.__name__, *arguments, *options.values())
        if method.__name__ in self.answer_with:
            answer = self.answer_with[method.__name__](*arguments, *options.values())
            return await answer if inspect.isawaitable(answer) else answer
        return await method(self, *arguments, **options)

    return cast(F, answer)


class MemoryState(Broker):
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._answered_calls: list[tuple[str, tuple[Any, ...]]] = []
        self.troubles: list[Exception] = []
        self.trouble_of: dict[str, Exception] = {}
        self.answer_with: dict[str, Callable[..., Any]] = {}
        self.meanwhile: dict[str, Callable[..., object]] = {}
        self.line = asyncio.Event()
        self.line.set()
        self.connected_as: int | None = 1  # None: the connection is lost
        self.is_behind = False  # the server is slow to take what is written
        self.client_count: int | None = 4  # connected to the server
        self.reply_bytes = 100  # what each reply to read() takes on the line
        self.now = 1_000_000  # the server's clock in ms
        self.stream: dict[bytes, list[bytes]] = {}
        self.groups: dict[str, MemoryGroup] = {}
        self.lease_ends: dict[str, dict[bytes, float]] = defaultdict(dict)  # by group and consumer
        self.delayed: list[tuple[int, bytes]] = []  # due time and member
        self.dead: list[list[bytes]] = []
        self.results: dict[str, bytes] = {}
        self.progress: dict[str, int] = {}
        self.logs: dict[str, list[str]] = defaultdict(list)
        self.events: list[Event] = []
        self.worker_records: dict[str, bytes] = {}
        self.is_queue_paused = False
        self.is_registered = False
        self.cancellations = Cancellations()
        self.leader: tuple[str, int] | None = None  # who promotes, and until when
        self.hints: list[int] = []  # what was published of due jobs, in ms
        self.on_due: Callable[[float], None] | None = None
        self.on_pause: Callable[[], None] | None = None
        self.on_backlog: Callable[[], None] | None = None
        self._last_id = 0

    # Hooks ----------------------------------------------------------------------------------------------------------

    def asked(self, method: str) -> list[tuple[Any, ...]]:
        return [call.arguments for call in self.calls if call.method == method]

    def answered(self, method: str) -> list[tuple[Any, ...]]:
        return [arguments for name, arguments in self._answered_calls if name == method]

    def _record(self, method: str, *arguments: Any) -> None:
        self.calls.append(Call(method, arguments, threading.get_ident()))

    async def _send(self, method: str, *arguments: Any) -> None:
        self._record(method, *arguments)
        if not self.line.is_set():
            await self.line.wait()
        if method in self.meanwhile:
            happens = self.meanwhile[method](*arguments)
            if inspect.isawaitable(happens):
                await happens

    def _raise_trouble(self, method: str, *arguments: Any) -> None:
        if method in self.trouble_of:
            raise self.trouble_of[method]
        if self.troubles:
            raise self.troubles.pop(0)
        self._answered_calls.append((method, arguments))

    # The connection -------------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self.connected_as is not None

    @property
    def is_congested(self) -> bool:
        return self.is_behind and self.is_connected

    @property
    def server_address(self) -> str:
        return "memory" if self.is_connected else ""

    @property
    def client_id(self) -> int | None:
        return self.connected_as

    def set_timeout(self, timeout_s: float) -> None:
        """Nothing times out here: see `line`."""

    async def close(self) -> None:
        self.connected_as = None

    def request_client_count(self, on_count: Callable[[int | None], None]) -> None:
        self._record("request_client_count")
        on_count(self.client_count if self.is_connected else None)

    # Entries --------------------------------------------------------------------------------------------------------

    def add_entry(self, *fields: bytes) -> bytes:
        """Put an entry into the stream; returns its id."""
        self._last_id += 1
        entry_id = b"%d-0" % self._last_id
        self.stream[entry_id] = list(fields)
        return entry_id

    def add_group(self, group: str) -> None:
        self.groups[group] = MemoryGroup()

    def _group(self, group: str) -> MemoryGroup:
        if group not in self.groups:
            raise ReplyError(f"NOGROUP No such consumer group '{group}'")
        return self.groups[group]

    def _is_held(self, group: str, consumer: str, entry_id: bytes, delivery: int) -> bool:
        """A lower count is of a group that was rebuilt: the same run has the entry."""
        held = self._group(group).pending.get(entry_id)
        return held is not None and held.consumer == consumer and held.deliveries <= delivery

    def _finish(self, group: str, ids: list[bytes]) -> None:
        for entry_id in ids:
            self.stream.pop(entry_id, None)
            if group in self.groups:
                self.groups[group].pending.pop(entry_id, None)
