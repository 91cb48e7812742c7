"""Runs in the official package's own environment: takes orders on standard input, reports on standard output.

One JSON object a line. An order is {"number", "do", ...} and is answered by {"number", "value"} or {"number", "error"}.
In between, {"started"} and {"ended"} report each run of a handler. Values travel as Python source, which separates
1 from 1.0, bytes from text, and an int key from a text one, which JSON does not. Ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from typing import Any

import chasquimq  # type: ignore[import-not-found]

WORDS = {
    "nan": math.nan,
    "inf": math.inf,
    "BackoffSpec": chasquimq.BackoffSpec,
    "RepeatPattern": chasquimq.RepeatPattern,
    "MissedFiresPolicy": chasquimq.MissedFiresPolicy,
}


def main() -> None:
    redis_url, queue_name = sys.argv[1:]
    asyncio.run(Official(redis_url, queue_name).obey())


class Official:
    def __init__(self, redis_url: str, queue_name: str) -> None:
        self._redis_url = redis_url
        self._queue_name = queue_name
        self._queue = chasquimq.Queue(queue_name, redis_url=redis_url)
        self._worker: Any = None
        self._running: asyncio.Task[None] | None = None

    async def obey(self) -> None:
        orders = asyncio.StreamReader(limit=2**26)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        while line := await orders.readline():
            order = json.loads(line)
            number = order.pop("number")
            try:
                value = await getattr(self, order.pop("do"))(**order)
            except Exception as error:  # noqa: BLE001  the giver of the order gets any error
                report(number=number, error=f"{type(error).__name__}: {error}")
            else:
                report(number=number, value=repr(value))
        os._exit(0)  # without the interpreter's own end, where the official engine sometimes crashes

    async def add(self, name: str, data: str, options: str) -> str:
        job = await self._queue.add(name, read(data), **read(f"dict({options})"))
        return str(job.id)

    async def add_bulk(self, jobs: str) -> list[str]:
        return [job.id for job in await self._queue.add_bulk(read(jobs))]

    async def cancel_delayed(self, job_id: str) -> Any:
        return await self._queue.cancel_delayed(job_id)

    async def upsert(self, name: str, data: str, options: str) -> str:
        job = await self._queue.upsert_repeatable_job(name, read(data), **read(f"dict({options})"))
        return str(job.id)

    async def remove_repeatable(self, key: str) -> Any:
        return await self._queue.remove_repeatable_by_key(key)

    async def repeatables(self) -> list[tuple[str, str]]:
        return [(meta.key, meta.job_name) for meta in await self._queue.get_repeatable_jobs()]

    async def listed(self) -> list[tuple[Any, ...]]:
        """What there is to say about each repeatable."""
        metas = await self._queue.get_repeatable_jobs()
        return [(meta.key, meta.job_name, meta.pattern.to_dict(), meta.next_fire_ms, meta.limit) for meta in metas]

    async def keys(self) -> list[str]:
        producer = chasquimq.Producer(self._redis_url, self._queue_name)
        return [producer.stream_key(), producer.delayed_key(), producer.dlq_key()]

    async def peek_dlq(self, limit: int) -> Any:
        return await self._queue.peek_dlq(limit)

    async def replay_dlq(self, limit: int) -> Any:
        return await self._queue.replay_dlq(limit)

    async def results(self, job_ids: list[str]) -> Any:
        return await self._queue.get_job_result_bulk(job_ids)

    async def events(self, count: int) -> list[tuple[Any, ...]]:
        events = chasquimq.QueueEvents(self._queue_name, redis_url=self._redis_url, last_event_id="0")
        seen: list[Any] = []
        async for event in events:
            seen.append(event)
            if len(seen) == count:
                break
        await events.close()
        return [(event.name, event.job_id, event.job_name, event.fields) for event in seen]

    async def work(
        self, fails: list[int], gives_up: bool, lasts_s: float, returns_data: bool, options: dict[str, Any]
    ) -> None:
        async def handle(job: Any) -> Any:
            seen = {"id": job.id, "name": job.name, "data": repr(job.data), "attempt": job.attempt}
            report(started={**seen, "created_at_ms": job.created_at_ms, "at": time.time()})
            await asyncio.sleep(lasts_s)
            report(ended={"id": job.id})
            if gives_up:
                raise chasquimq.UnrecoverableError("gives up")
            if job.attempt in fails:
                raise RuntimeError("fails as planned")
            return job.data if returns_data else None

        self._worker = chasquimq.Worker(self._queue_name, handle, redis_url=self._redis_url, **options)
        self._running = asyncio.create_task(self._worker.run())

    async def stop_working(self) -> None:
        assert self._running is not None
        await self._worker.close()
        await self._running


def read(source: str) -> Any:
    return eval(source, dict(WORDS))


def report(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
