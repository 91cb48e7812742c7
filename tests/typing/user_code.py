"""A user's program for the type checkers. A line with `type: ignore` is wrong, and a checker must say so."""

# pyright: reportUnnecessaryTypeIgnoreComment=true
from __future__ import annotations

from datetime import timedelta

import pychasqui
from pychasqui import Job, Queue, RepeatPattern, RetryPolicy, Worker


async def handle(job: Job) -> None:
    assert job.attempt >= 0


async def right(queue: Queue) -> None:
    Worker("emails", handle)
    Worker(queue_name="emails", handler=handle, concurrency=5, read_count=None, consumer_id=None, retry=RetryPolicy())
    Worker("emails", handle, metrics_port=None, tracing="off", shutdown_deadline_s=1)
    Worker("emails", handle, timeout={"send": timedelta(minutes=5), "report": 3.5})
    Queue("emails", max_stream_len=None, timeout_s=3)
    job: Job = await queue.add("send", {"to": "ann"}, delay=timedelta(minutes=1), attempts=3, backoff=100)
    await queue.add("send", timeout=timedelta(minutes=1), expires_in=timedelta(hours=1))
    if await queue.cancel(job.id) == "removed":
        job.extend(5)
        assert not job.is_cancelled
    await queue.add("send", job_id="one", unique_for=5000, if_exists="replace", wait_replicas=1)
    await queue.add("send", repeat=RepeatPattern.every(1000))
    await queue.add_unique("send", job_id=job.id, delay_ms=5)
    jobs: list[Job] = await queue.add_bulk([{"name": "send", "data": 1}])
    await queue.wait_for_results([one.id for one in jobs])
    letters: list[dict[str, object]] = await queue.peek_dlq(5)
    assert letters == []


async def wrong(queue: Queue) -> None:
    Worker("emails", handle, concurency=5)  # type: ignore
    Worker("emails", handle, concurrency="5")  # type: ignore
    Worker("emails", handle, concurrency=None)  # type: ignore
    Worker("emails", handle, timeout="5")  # type: ignore
    await queue.add("send", timeout=5)  # type: ignore
    await queue.add("send", expires_in=5)  # type: ignore
    bool.__and__(await queue.cancel("id"), True)  # type: ignore
    Job("id", "send", None).extend("5")  # type: ignore
    Worker("emails")  # type: ignore
    Worker(5, handle)  # type: ignore
    Queue("emails", max_stream_len="many")  # type: ignore
    Queue()  # type: ignore
    await queue.add("send", delay="soon")  # type: ignore
    await queue.add("send", if_exists="drop")  # type: ignore
    await queue.add("send", prio=1)  # type: ignore
    await queue.add_unique("send")  # type: ignore
    pychasqui.Queu  # type: ignore
