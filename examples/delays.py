"""Delays jobs, reschedules one and cancels one. Run it: python examples/delays.py"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta

from pychasqui import Job, Queue, Worker

URL = os.environ.get("CHASQUI_URL", "embedded://")
DONE = asyncio.Event()


async def remind(job: Job) -> None:
    print(f"{job.name}: {job.data['about']}", flush=True)
    if job.data["about"] == "the last one":
        DONE.set()


async def main() -> None:
    async with Queue("reminders", redis_url=URL) as queue:
        await queue.add("remind", {"about": "tea"}, delay_ms=100)
        await queue.add("remind", {"about": "the last one"}, delay_ms=datetime.now(UTC) + timedelta(seconds=0.4))

        lunch = await queue.add("remind", {"about": "lunch"}, delay=timedelta(hours=2))
        print("lunch is cancelled:", await queue.cancel_delayed(lunch.id))

        walk = await queue.add("remind", {"about": "a walk"}, delay=timedelta(hours=3))
        await queue.reschedule(walk.id, timedelta(hours=1))
        print("the walk comes first:", await queue.run_now(walk.id))

        async with Worker("reminders", remind, redis_url=URL):
            await DONE.wait()


asyncio.run(main())
