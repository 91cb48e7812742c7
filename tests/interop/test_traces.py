"""Jobs that carry the context of a trace are run by official workers as any others."""

from __future__ import annotations

import pytest

from pychasqui import Queue, Worker
from tests.interop.official import Official
from tests.interop.runs import Handler
from tests.support.waiting import eventually

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider

from pychasqui.integrations.opentelemetry import OpenTelemetry

TRACING = OpenTelemetry(TracerProvider())


async def test_an_official_worker_runs_traced_jobs_at_once_after_a_delay_and_again(
    official: Official, redis_url: str, queue_name: str
) -> None:
    async with Queue(queue_name, redis_url=redis_url, tracing=TRACING) as queue:
        now = await queue.add("mail", {"n": 1})
        later = await queue.add("mail", {"n": 2}, delay_ms=100, attempts=3)
        bulk = await queue.add_bulk([{"name": "mail", "data": {"n": 3}}] * 2)
        await official.work(fails=[0])
        await eventually(lambda: len(official.ended) == 8)
    assert sorted((run.id, run.attempt, run.data) for run in official.runs) == sorted(
        (job.id, attempt, repr(job.data)) for job in (now, later, *bulk) for attempt in (0, 1)
    )


async def test_a_traced_worker_runs_jobs_of_an_official_producer(
    official: Official, redis_url: str, queue_name: str
) -> None:
    handler = Handler()
    async with Worker(queue_name, handler, redis_url=redis_url, tracing=TRACING, events_enabled=False):
        (job_id,) = await official.add_bulk([{"name": "mail", "data": 1}])
        await eventually(lambda: handler.ended == [job_id])
