"""A broker of either kind, the one in memory or the one of a real server, to be asked the same things.

A Bench also fills its queue and looks at it from outside, as no call of a broker does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio

from pychasqui._redis.broker import Broker
from pychasqui._redis.connector import Connector
from pychasqui._redis.events import EventsBroker
from pychasqui._redis.inspector import InspectorBroker
from pychasqui._redis.keys import REGISTRY, Keys
from pychasqui._redis.reading import ReadRequest
from pychasqui._redis.replies import ByteBounds
from pychasqui._redis.results import ResultsBroker
from pychasqui._wire.event import read_event
from tests.support.memory_broker import MemoryBroker

GROUP, ME, OTHER = "default", "me", "other"
LEASE_MS = 60_000
BOUNDS = ByteBounds(2**20, 2**20)
KINDS = ("memory", "redis")


class Bench(ABC):
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.arrived: list[list[bytes]] = []

    async def fill(self, count: int) -> list[bytes]:
        await self.broker.report_held_to_rebuild_group(GROUP, ME, LEASE_MS, [])
        return [await self.add() for _ in range(count)]

    async def leave(self, consumer: str) -> bool:
        return await self.broker.leave_group_if_lease_is_same(
            GROUP, consumer, await self.broker.read_lease_end_or_zero(GROUP, consumer)
        )

    async def read(self, consumer: str = ME, count: int = 10, small: int = 100) -> list[bytes]:
        def arrive(entries: list[Any]) -> None:
            self.arrived.append([entry_id for entry_id, _ in entries])

        request = ReadRequest(count, None, math.inf, arrive, small)
        reading = await self.broker.send_read(GROUP, consumer, request)
        entries = await reading
        assert reading.reply_bytes > 0
        return [entry_id for entry_id, _ in entries]

    # From outside ---------------------------------------------------------------------------------------------------

    @abstractmethod
    async def add(self) -> bytes: ...

    @abstractmethod
    async def drop_group(self) -> None: ...

    @abstractmethod
    async def write_lease(self, consumer: str, end_ms: int) -> None: ...

    @abstractmethod
    async def publish_pause_hint(self) -> None: ...

    @abstractmethod
    async def event_kinds(self) -> list[str]: ...

    @abstractmethod
    async def result_of(self, job_id: str) -> bytes | None: ...

    @abstractmethod
    async def progress_of(self, job_id: str) -> int | None: ...

    @abstractmethod
    async def log_of(self, job_id: str) -> list[str]: ...

    @abstractmethod
    async def counts(self) -> tuple[int, int, int]:
        """How many entries are in the stream, delayed, dead."""

    @abstractmethod
    async def is_registered(self) -> bool: ...

    @abstractmethod
    async def has_lag(self) -> bool:
        """Whether the server says how far a group is behind: Redis 6.2 does not."""


class MemoryBench(Bench):
    def __init__(self) -> None:
        self.memory = MemoryBroker()
        super().__init__(self.memory)

    async def add(self) -> bytes:
        return self.memory.add_entry(b"d", b"x")

    async def drop_group(self) -> None:
        del self.memory.groups[GROUP]

    async def write_lease(self, consumer: str, end_ms: int) -> None:
        self.memory.lease_ends[GROUP][consumer.encode()] = end_ms

    async def publish_pause_hint(self) -> None:
        assert self.memory.on_pause is not None
        self.memory.on_pause()

    async def event_kinds(self) -> list[str]:
        return [event.kind for event in self.memory.events]

    async def result_of(self, job_id: str) -> bytes | None:
        return self.memory.results.get(job_id)

    async def progress_of(self, job_id: str) -> int | None:
        return self.memory.progress.get(job_id)

    async def log_of(self, job_id: str) -> list[str]:
        return self.memory.logs[job_id]

    async def counts(self) -> tuple[int, int, int]:
        return len(self.memory.stream), len(self.memory.delayed), len(self.memory.dead)

    async def is_registered(self) -> bool:
        return self.memory.is_registered

    async def has_lag(self) -> bool:
        return True


class RedisBench(Bench):
    def __init__(self, broker: Broker, witness: redis.asyncio.Redis, keys: Keys) -> None:
        super().__init__(broker)
        self.witness = witness
        self.keys = keys
        self._results = ResultsBroker(broker, keys)

    async def add(self) -> bytes:
        added: bytes = await self.witness.xadd(self.keys.stream, {b"d": b"x"})
        return added

    async def drop_group(self) -> None:
        await self.witness.xgroup_destroy(self.keys.stream, GROUP)

    async def write_lease(self, consumer: str, end_ms: int) -> None:
        await self.witness.zadd(self.keys.workers_of(GROUP), {consumer: end_ms})

    async def publish_pause_hint(self) -> None:
        await self.witness.publish(self.keys.pause_channel, b"")

    async def event_kinds(self) -> list[str]:
        newest = await EventsBroker(self.broker, self.keys).read_newest_events(100)
        return [read_event(entry).name for entry in newest]

    async def result_of(self, job_id: str) -> bytes | None:
        return (await self._results.read_results([job_id]))[0]

    async def progress_of(self, job_id: str) -> int | None:
        return await self._results.read_progress(job_id)

    async def log_of(self, job_id: str) -> list[str]:
        return await self._results.read_last_log_lines(job_id, 10)

    async def counts(self) -> tuple[int, int, int]:
        found = await InspectorBroker(self.broker, self.keys, GROUP).read_counts()
        return found.waiting + found.active, found.delayed, found.dead

    async def is_registered(self) -> bool:
        return await self.witness.zscore(REGISTRY, self.keys.queue_name) is not None

    async def has_lag(self) -> bool:
        (group,) = await self.witness.xinfo_groups(self.keys.stream)
        return "lag" in group


@asynccontextmanager
async def open_redis_bench(redis_url: str, queue_name: str, witness: redis.asyncio.Redis) -> AsyncIterator[RedisBench]:
    keys = Keys(queue_name)
    connector = Connector(redis_url, tls=False, client_name="conformance")
    broker = connector.make_broker(keys, timeout_s=5)
    yield RedisBench(broker, witness, keys)
    await broker.close()
    connector.leave_embedded_server_and_stop_logging()


@asynccontextmanager
async def open_bench(kind: str, redis_url: str, queue_name: str, witness: redis.asyncio.Redis) -> AsyncIterator[Bench]:
    """A bench of one of KINDS."""
    if kind == "memory":
        yield MemoryBench()
        return
    async with open_redis_bench(redis_url, queue_name, witness) as bench:
        yield bench
