"""Reads the events of a queue as they happen, and again later. Run it: python examples/events.py"""

from __future__ import annotations

import asyncio
import os

from pychasqui import Job, Queue, QueueEvent, QueueEvents, Worker

URL = os.environ.get("CHASQUI_URL", "embedded://")


async def send(job: Job) -> None:
    if job.attempt == 0 and job.data == "bo":
        raise ConnectionError("the mail server is away")


async def main() -> None:
    events = QueueEvents("mail", redis_url=URL)

    def on_failed(event: QueueEvent) -> None:
        print(f"failed: {event.job_name}, run {event.fields['attempt']}: {event.fields['reason']}")

    async def on_completed(event: QueueEvent) -> None:
        print(f"completed: {event.job_name}, run {event.fields['attempt']}")
        if event.fields["attempt"] == 2:
            await events.close()

    events.on("failed", on_failed)
    events.on("completed", on_completed)
    await events.start()  # no event from here on is missed
    start = events.last_event_id

    async with Queue("mail", redis_url=URL) as queue, Worker("mail", send, redis_url=URL):
        await queue.add("send", "bo", backoff=10)
        await events.run()  # returns when `events` is closed

    # A reader that was away continues after the last event that it saw.
    async with QueueEvents("mail", redis_url=URL, last_event_id=start, names=["active"]) as later:
        print("again:", [(await anext(later)).fields["attempt"] for _ in range(2)])


asyncio.run(main())
