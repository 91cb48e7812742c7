"""Log lines of a running job, and the worker's lines about it, name the job."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from pychasqui import Job, Queue, RetryPolicy, Worker, logs
from tests.support.streams import Stream
from tests.support.waiting import eventually


@pytest.mark.parametrize("is_async", (True, False))
async def test_a_handler_s_lines_and_the_worker_s_name_the_job(
    redis_url: str, queue_name: str, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.handler.addFilter(logs.JobFilter())

    def handle(job: Job) -> None:
        logging.getLogger("shop").info("trying")
        if job.attempt < 2:
            raise ValueError("no")

    async def handle_async(job: Job) -> None:
        handle(job)

    options: dict[str, Any] = {"redis_url": redis_url, "retry": RetryPolicy(initial_ms=1, jitter_ms=0)}
    worker = Worker(queue_name, handle_async if is_async else handle, events_enabled=False, **options)
    async with Queue(queue_name, redis_url=redis_url) as queue, worker:
        job = await queue.add("mail")
        await eventually(lambda: sum(record.name == "shop" for record in caplog.records) == 3)
    lines = [json.loads(logs.JsonFormatter().format(record)) for record in caplog.records]
    about = [line for line in lines if line["event"] == "trying" or " failed in run " in line["event"]]
    assert [(line["logger"], line["attempt"]) for line in about] == [
        ("shop", 0),
        ("chasqui.worker", 0),
        ("shop", 1),
        ("chasqui.worker", 1),
        ("shop", 2),
    ]
    assert {(line["queue"], line["job_id"], line["job_name"]) for line in about} == {(queue_name, job.id, "mail")}
    assert not any("job_id" in line for line in lines if line not in about)


async def test_a_line_about_many_dead_jobs_names_none_of_them(
    redis_url: str, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(logs.JobFilter())

    async def handle(job: Job) -> None:
        raise ValueError("no")

    worker = Worker(queue_name, handle, redis_url=redis_url, max_attempts=1)
    async with Queue(queue_name, redis_url=redis_url) as queue, worker:
        await queue.add_bulk([{"name": "mail"}] * 20)
        line = await eventually(
            lambda: next(
                (record for record in caplog.records if " more jobs or entries have died" in record.getMessage()), None
            )
        )
        await queue.dlq.purge()
    assert not hasattr(line, "job_id")


async def test_no_context_is_set_without_a_filter(
    redis_url: str, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_filters_made", 0)
    seen: list[object] = []

    async def handle(job: Job) -> None:
        seen.append(logs._running.get())

    worker = Worker(queue_name, handle, redis_url=redis_url, events_enabled=False)
    async with Queue(queue_name, redis_url=redis_url) as queue, worker:
        await queue.add("mail")
        await eventually(lambda: seen)
    assert seen == [None]


class BrokenHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("the log server is away")


@pytest.mark.parametrize("is_async", (True, False))
async def test_a_log_that_raises_costs_no_job_its_outcome_and_stops_no_worker(
    redis_url: str, queue_name: str, monkeypatch: pytest.MonkeyPatch, stream: Stream, is_async: bool
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log = logging.getLogger("chasqui.worker")
    ran: list[str] = []

    def handle(job: Job) -> None:
        ran.append(job.name)
        if job.name == "bad":
            raise ValueError("no")

    async def handle_async(job: Job) -> None:
        handle(job)

    worker = Worker(queue_name, handle_async if is_async else handle, redis_url=redis_url, max_attempts=1)
    async with Queue(queue_name, redis_url=redis_url) as queue:
        async with worker:
            log.addHandler(broken := BrokenHandler())
            try:
                await queue.add_bulk({"name": name} for name in ("bad", "bad", "good"))
                await eventually(stream.is_settled)
                assert worker.is_running
                await worker.close()
            finally:
                log.removeHandler(broken)
        assert await queue.dlq.count() == 2
        await queue.dlq.purge()
    assert sorted(ran) == ["bad", "bad", "good"]
