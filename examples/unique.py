"""Adds one job per id: a double click charges once, many edits are indexed once. Run it: python examples/unique.py"""

from __future__ import annotations

import asyncio
import os

from pychasqui import Job, Queue, Worker

URL = os.environ.get("CHASQUI_URL", "embedded://")
DONE = asyncio.Event()


async def handle(job: Job) -> None:
    print(f"{job.name} {job.id}: {job.data}", flush=True)
    if job.name == "index":
        DONE.set()


async def main() -> None:
    async with Queue("shop", redis_url=URL) as queue:
        # Until this job is done, further adds of its id change nothing, in any process.
        first = await queue.add("charge", {"amount": 10}, job_id="order-17")
        second = await queue.add("charge", {"amount": 10}, job_id="order-17")
        print("new:", first.is_new, second.is_new)

        # One newsletter a day, even after the first one is done.
        await queue.add("newsletter", job_id="newsletter-ada", unique_for=24 * 3600 * 1000)

        # Debounce: run when nobody has edited for 200 ms, with the last data.
        for revision in range(5):
            await queue.add("index", {"revision": revision}, job_id="page-7", delay_ms=200, if_exists="postpone")

        async with Worker("shop", handle, redis_url=URL, concurrency=1):
            await DONE.wait()


asyncio.run(main())
