"""Repeats jobs by an interval and by a cron expression. Run it: python examples/schedules.py"""

from __future__ import annotations

import asyncio
import os

from pychasqui import Job, MissedFiresPolicy, Queue, RepeatPattern, Worker

URL = os.environ.get("CHASQUI_URL", "embedded://")
DONE = asyncio.Event()


async def handle(job: Job) -> None:
    assert job.scheduled_at_ms is not None
    print(f"{job.name} {job.data}", flush=True)
    if job.name == "goodbye":
        DONE.set()


async def main() -> None:
    async with Queue("schedules", redis_url=URL) as queue:
        await queue.repeatables.upsert("beat", 1, repeat=RepeatPattern.every(100), limit=3)
        await queue.repeatables.upsert("goodbye", 2, repeat=RepeatPattern.every(600), limit=1)
        report = await queue.repeatables.upsert(
            "report",
            {"to": "ada"},
            repeat=RepeatPattern.cron("0 9 * * MON-FRI", tz="Europe/Berlin"),
            missed_fires=MissedFiresPolicy.fire_once(),
            attempts=5,
        )
        print("the next reports:", len(await queue.repeatables.next_fires(report.key, 3)))

        async with Worker("schedules", handle, redis_url=URL):
            await DONE.wait()
        print("removed:", await queue.repeatables.remove(report.key))


asyncio.run(main())
