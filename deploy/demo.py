"""What docker-compose.yaml shows: a program that adds jobs and runs them, of which some are slow and some fail."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from contextlib import suppress

from pychasqui import Job, PrometheusSink, Queue, RedisTrouble, RepeatPattern, RetryPolicy, UnrecoverableError, Worker

QUEUE = "demo"
REDIS_URL = os.environ.get("CHASQUI_REDIS_URL", "redis://127.0.0.1:6379")
METRICS_HOST = os.environ.get("METRICS_HOST", "127.0.0.1")
METRICS_PORT = int(os.environ.get("METRICS_PORT", "9400"))
JOBS = (("mail", 0.01), ("thumbnail", 0.1), ("invoice", 0.5))  # names, and how long they take, in seconds


async def handle(job: Job) -> None:
    await asyncio.sleep(random.expovariate(1 / dict(JOBS).get(job.name, 1.0)))
    luck = random.random()
    if luck < 0.001:
        raise UnrecoverableError("this will never do")
    if luck < 0.03:
        raise ConnectionError("the mail server is away")


async def add_jobs(queue: Queue) -> None:
    """At a pace that rises and falls, so that there is something to see."""
    while True:
        names = [random.choice(JOBS)[0] for _ in range(random.randrange(10))]
        with suppress(RedisTrouble):  # it may be away for a while
            await queue.add_bulk({"name": name, "delay_ms": random.choice((0, 0, 2000))} for name in names)
        await asyncio.sleep(random.choice((0.05, 0.1, 0.5)))


async def main() -> None:
    sink = PrometheusSink(QUEUE)  # one for both, so that one page shows both
    async with Queue(QUEUE, redis_url=REDIS_URL, metrics=sink) as queue:
        await queue.upsert_repeatable_job("report", repeat=RepeatPattern.every(10_000))
        adding = asyncio.create_task(add_jobs(queue))
        try:
            await Worker(
                QUEUE,
                handle,
                redis_url=REDIS_URL,
                concurrency=20,
                retry=RetryPolicy(initial_ms=500),
                metrics=sink,
                metrics_host=METRICS_HOST,
                metrics_port=METRICS_PORT,
            ).run(handle_signals=True)
        finally:
            adding.cancel()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(main())
