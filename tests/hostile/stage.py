"""Everything that lives on one queue, in one process: worker, promoter, scheduler, exporter, subscriber, waiters.

The stage knows which of its jobs have run, whether each part lives, and how to bring a dead one back, so that one
death does not hide the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import redis.asyncio

from pychasqui import Job, Queue, QueueEvents, Queues, RepeatPattern, RetryLater, UnrecoverableError, Worker
from pychasqui._redis.keys import Keys
from pychasqui.errors import ChasquiError
from pychasqui.exporter import QueueExporter
from pychasqui.standalone import Promoter, Scheduler
from tests.hostile.writes import Target
from tests.support.waiting import eventually

TICK = "tick"
TICK_MS = 100
LEASE_MS = 2000
CLAIM_MIN_IDLE_MS = 1000
DONE = {"now", "later", "again", "only"}  # jobs that run to a good end
DEADLY = "dies"


class Part:
    """A program or a task that must never end by itself."""

    def __init__(self, name: str, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.name = name
        self._start = start
        self._task = asyncio.create_task(start())

    def death(self) -> str | None:
        """Returns the cause of its death once, and starts it again."""
        if not self._task.done():
            return None
        error = None if self._task.cancelled() else self._task.exception()
        self._task = asyncio.create_task(self._start())
        return f"{self.name} died of {type(error).__name__}: {error!s:.300}"

    async def end(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._task


class HostileStage:
    def __init__(self, redis_url: str, name: str) -> None:
        self.redis_url = redis_url
        self.queue = Queue(name, redis_url=redis_url, timeout_s=3.0)
        self.bystander = Queue(f"{name}-bystander", redis_url=redis_url, timeout_s=3.0)
        self.queues = Queues(redis_url, timeout_s=3.0)
        self.exporter = QueueExporter([self.queue, self.bystander])
        self.ran: Counter[str] = Counter()  # tokens of jobs that have run to a good end, or have died
        self.ticks: set[str] = set()  # jobs of its repeatable that have run
        self.seen: set[str] = set()  # jobs of which the subscriber has seen that they are completed
        self.consumer = f"w-{name}"
        self.parts: list[Part] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.queue)
        await self._stack.enter_async_context(self.bystander)
        await self._stack.enter_async_context(self.queues)
        await self._stack.enter_async_context(self.exporter)
        await self.upsert_tick()
        self.parts = [
            Part("worker", self._work),
            Part("promoter", lambda: Promoter(self.queue.name, redis_url=self.redis_url).run()),
            Part("scheduler", lambda: Scheduler(self.queue.name, redis_url=self.redis_url).run()),
            Part("subscriber", self._subscribe),
        ]
        # A worker that starts raises what it cannot mend, so the writes begin once it has started.
        token, _ = await self.add("now")
        await eventually(lambda: self.ran[token] > 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in self.parts:
            await part.end()
        await self._stack.aclose()

    async def target(self, client: redis.asyncio.Redis, job_ids: list[str]) -> Target:
        keys = Keys(self.queue.name)
        ledgers = [key async for key in client.scan_iter(match=f"{keys.prefix}:ledger:*", count=1000)]
        producer = ledgers[0].decode().rpartition(":")[2] if ledgers else "nobody"
        return Target(keys, self.consumer, producer, TICK, job_ids)

    async def upsert_tick(self) -> None:
        await self.queue.repeatables.remove(TICK)
        await self.queue.repeatables.upsert(TICK, repeat=RepeatPattern.every(TICK_MS), key=TICK)

    async def add(self, kind: str) -> tuple[str, Job]:
        """A job of that kind, and the token that its run leaves."""
        token = uuid4().hex
        terms: dict[str, dict[str, Any]] = {"later": {"delay_ms": 20}, "only": {"job_id": token}}
        options = terms.get(kind, {})
        return token, await self.queue.add(kind, {"token": token, "kind": kind}, **options)

    async def _work(self) -> None:
        worker = Worker(
            self.queue.name,
            self._handle,
            redis_url=self.redis_url,
            concurrency=5,
            consumer_id=f"w-{self.queue.name}-{uuid4().hex[:4]}",
            lease_ms=LEASE_MS,
            claim_min_idle_ms=CLAIM_MIN_IDLE_MS,
            store_results=True,
            metrics_port=0,
            dlq_max_stream_len=2000,
            scheduler_tick_ms=200,
            shutdown_deadline_s=1.0,
        )
        self.consumer = worker.consumer_id
        await worker.run()

    async def _handle(self, job: Job) -> Any:
        if job.name == TICK:
            self.ticks.add(job.id)
            return None
        data = job.data if isinstance(job.data, dict) else {}
        token, kind = str(data.get("token")), data.get("kind")
        if kind == "again" and job.attempt == 0:
            raise RetryLater(0.02)
        await job.progress(50) if kind == "only" else None
        self.ran[token] += 1
        if kind == DEADLY:
            raise UnrecoverableError(token)
        return {"token": token}

    async def _subscribe(self) -> None:
        async with QueueEvents(self.queue.name, redis_url=self.redis_url, block_ms=500) as events:
            async for event in events:
                if event.name == "completed" and event.job_id is not None:
                    self.seen.add(event.job_id)

    def deaths(self) -> list[str]:
        return [death for part in self.parts if (death := part.death()) is not None]

    # Reading ---------------------------------------------------------------------------------------------------------

    def readers(self, job_id: str) -> dict[str, Awaitable[Any]]:
        """Everything that the public classes read, by name, and what looks for a job before it changes anything."""
        queue, name = self.queue, self.queue.name
        return {
            "counts": queue.counts(),
            "workers": queue.workers(),
            "oldest_age_ms": queue.oldest_age_ms(),
            "is_paused": queue.is_paused(),
            "get_job": queue.get_job(job_id),
            **{f"jobs {state}": queue.jobs(state) for state in ("waiting", "active", "delayed", "dead")},
            "status": queue.status(job_id),
            "get_job_result": queue.get_job_result(job_id),
            "get_job_result_bulk": queue.get_job_result_bulk([job_id, "nobody"]),
            "get_job_progress": queue.get_job_progress(job_id),
            "get_job_logs": queue.get_job_logs(job_id),
            "read_job_log": queue.read_job_log(job_id),
            "dlq.page": self._read_letters(),
            "dlq.count": queue.dlq.count(name="now"),
            "dlq.count_by_reason": queue.dlq.count_by_reason(),
            "dlq.dropped": queue.dlq.dropped(),
            "dlq.replay": queue.dlq.replay(dry_run=True),
            "dlq.remove": queue.dlq.remove(dry_run=True, name="now"),
            "dlq.purge": queue.dlq.purge(dry_run=True),
            "peek_dlq": queue.peek_dlq(),
            "cancel": queue.cancel("nobody"),
            "cancel_delayed": queue.cancel_delayed("nobody"),
            "reschedule": queue.reschedule("nobody", 5),
            "run_now": queue.run_now("nobody"),
            "forget_job": queue.forget_job("nobody"),
            "queues.find_names": self.queues.find_names(),
            "queues.overview": self.queues.overview([name]),
            "queues.official_facts": self.queues.official_facts(name),
            "queues.lag_ms": self.queues.lag_ms(name),
            "queues.workers": self.queues.workers(name),
            "repeatables.page": queue.get_repeatable_jobs(),
            **{f"repeatables.get {key}": queue.repeatables.get(key) for key in (TICK, "k", "other")},
            **{f"repeatables.next_fires {key}": queue.repeatables.next_fires(key) for key in (TICK, "k", "other")},
            "exporter": self._read_exporter(),
        }

    async def _read_letters(self) -> None:
        for letter in await self.queue.dlq.page():
            repr(letter), letter.died_at
            with suppress(ChasquiError):
                _ = letter.data

    async def _read_exporter(self) -> None:
        page = await self.exporter.render()
        assert f'chasquimq_queue_up{{queue="{self.bystander.name}"}} 1' in page, "the exporter's page lost a queue"
        assert len(page) < 1_000_000, f"the exporter's page has {len(page)} characters"

    async def fetch(self, path: str) -> int:
        """The status of a page of the exporter."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.exporter.metrics_port)
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        status = int((await reader.readline()).split()[1])
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        return status


class Alarm(logging.Handler):
    """Records deaths that no caller sees: critical log lines, and errors that reach only the event loop's handler."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []
        self.lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if record.levelno >= logging.CRITICAL or record.name == "asyncio" or record.exc_info:
            self.heard.append(
                f"{record.levelname} {record.name}: {line[:300]} {record.exc_info and record.exc_info[1]!r}"
            )

    def take(self) -> list[str]:
        heard, self.heard = self.heard, []
        return heard
