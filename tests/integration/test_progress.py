"""Progress and logs: what a handler reports about its job while it runs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import redis.asyncio

from pychasqui import InvalidArgument, InvalidType, Job, Queue, QueueEvents, Worker
from tests.support.server import RedisServer
from tests.support.waiting import eventually


def key(queue_name: str, kind: str, job_id: str) -> str:
    return f"{{chasqui:{queue_name}}}:{kind}:{job_id}"


async def test_the_progress_of_a_job_can_be_seen_while_it_runs(
    queue: Queue, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
) -> None:
    go_on = asyncio.Event()

    async def handle(job: Job) -> None:
        await job.progress(1, 4, "a quarter")
        await go_on.wait()
        job.progress(100)  # need not be awaited

    async with (
        QueueEvents(queue_name, redis_url=redis_url, names=["progress"]) as events,
        Worker(queue_name, handle, redis_url=redis_url),
    ):
        job = await queue.add("work")
        first = await anext(events)
        assert await queue.get_job_progress(job.id) == 25
        go_on.set()
        second = await anext(events)
        await eventually(lambda: _is(queue.get_job_progress(job.id), 100))
    assert (first.job_id, first.job_name) == (job.id, "work")
    said = {name: value for name, value in first.fields.items() if name != "ts"}
    assert said == {"progress": "25", "done": "1", "total": "4", "note": "a quarter"}
    assert (second.fields["progress"], "note" in second.fields) == ("100", False)
    assert await witness.get(key(queue_name, "progress", job.id)) == b"100"
    assert 0 < await witness.pttl(key(queue_name, "progress", job.id)) <= 3_600_000


@pytest.mark.parametrize(
    ("done", "total", "percent"),
    ((0, 100, 0), (1, 3, 33), (99.99, 100, 99), (5, 4, 100), (0.5, 1, 50), (10**200, 10**250, 0), (7, 7, 100)),
)
async def test_progress_is_a_percentage_from_0_to_100(
    queue: Queue, redis_url: str, queue_name: str, done: float, total: float, percent: int
) -> None:
    async def handle(job: Job) -> None:
        await job.progress(done, total)

    async with Worker(queue_name, handle, redis_url=redis_url):
        job = await queue.add("work")
        await eventually(lambda: _is(queue.get_job_progress(job.id), percent))


async def test_lines_of_a_log_come_back_in_order_and_have_an_end(
    queue: Queue, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
) -> None:
    async def handle(job: Job) -> None:
        for number in range(5):
            await job.log(f"line {number}")

    async with Worker(queue_name, handle, redis_url=redis_url, store_results=True, result_ttl_ms=60_000):
        job = await queue.add("work")
        await job.wait_for_result()
        await eventually(lambda: _has_lines(queue, job.id, 5))
    assert await queue.get_job_logs(job.id) == [f"line {number}" for number in range(5)]
    assert await queue.get_job_logs(job.id, limit=2) == ["line 3", "line 4"]
    entries = await witness.xrange(key(queue_name, "log", job.id))
    assert entries[0][1] == {b"line": b"line 0"}
    assert 0 < await witness.pttl(key(queue_name, "log", job.id)) <= 60_000


async def test_lines_are_cut_and_old_ones_go(queue: Queue, redis_url: str, queue_name: str) -> None:
    async def handle(job: Job) -> None:
        for _ in range(1500):
            job.log("x")
        job.log("ü" * 5000)
        job.log("half of \ud800 a pair")
        job.log(7)  # type: ignore[arg-type]

    async with Worker(queue_name, handle, redis_url=redis_url, store_results=True):
        job = await queue.add("work")
        await job.wait_for_result()
        lines = await eventually(lambda: _ending_with(queue, job.id, "7"))
    assert 1000 <= len(lines) <= 1200
    assert lines[-3] == "ü" * 2048
    assert lines[-2] == "half of \\ud800 a pair"


async def test_a_handler_that_fills_the_line_with_its_log_delays_no_answer(
    queue: Queue, redis_url: str, queue_name: str
) -> None:
    async def handle(job: Job) -> None:
        for number in range(1500):
            await job.log(f"{number:4096}")

    async with (
        QueueEvents(queue_name, redis_url=redis_url, names=["completed"]) as events,
        Worker(queue_name, handle, redis_url=redis_url, store_results=True),
    ):
        job = await queue.add("work")
        assert (await asyncio.wait_for(anext(events), 40)).job_id == job.id
        lines = await queue.get_job_logs(job.id, limit=1000)
    assert [int(line) for line in lines] == list(range(500, 1500))


async def test_a_job_without_reports_has_none(queue: Queue) -> None:
    assert await queue.get_job_progress("j") is None
    assert await queue.get_job_logs("j") == []


async def test_handlers_in_threads_may_report_too(queue: Queue, redis_url: str, queue_name: str) -> None:
    def handle(job: Job) -> None:
        assert threading.current_thread() is not threading.main_thread()
        job.progress(1, 2)
        job.log("from a thread")

    async with Worker(queue_name, handle, redis_url=redis_url, concurrency=2):
        job = await queue.add("work")
        await eventually(lambda: _is(queue.get_job_progress(job.id), 50))
        await eventually(lambda: _has_lines(queue, job.id, 1))


async def test_progress_is_kept_also_without_events(queue: Queue, redis_url: str, queue_name: str) -> None:
    async def handle(job: Job) -> None:
        await job.progress(1, 2)

    async with Worker(queue_name, handle, redis_url=redis_url, events_enabled=False):
        job = await queue.add("work")
        await eventually(lambda: _is(queue.get_job_progress(job.id), 50))


async def test_progress_is_not_kept_without_memory_and_the_job_is_done(queue_name: str) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def handle(job: Job) -> str:
        started.set()
        await go_on.wait()
        await job.progress(50)
        await job.log("no room for this")
        return "done"

    with RedisServer() as server:
        async with (
            Queue(queue_name, redis_url=server.url) as queue,
            Worker(queue_name, handle, redis_url=server.url, store_results=True),
        ):
            job = await queue.add("work")
            await started.wait()
            server.execute("CONFIG", "SET", "maxmemory", 1)
            go_on.set()
            await eventually(lambda: _is_done(queue))
            server.execute("CONFIG", "SET", "maxmemory", 0)
            assert await queue.get_job_progress(job.id) is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    (
        ((-1,), "done is -1"),
        ((True,), "done is True"),
        (("5",), "done is '5'"),
        ((None,), "done is None"),
        ((float("nan"),), "done is nan"),
        ((10**400,), "done is 1000"),
        ((1, 0), "total is 0"),
        ((1, -5), "total is -5"),
        ((1, float("inf")), "total is inf"),
    ),
)
async def test_progress_must_be_a_number(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        Job("j", "work", None).progress(*arguments)


async def test_progress_and_log_lines_need_a_running_job() -> None:
    job = Job("j", "work", None)
    with pytest.raises(RuntimeError, match="only a handler"):
        job.progress(1)
    with pytest.raises(RuntimeError, match="only a handler"):
        job.log("line")


async def test_the_number_of_lines_must_be_one(queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="limit is 0, must be at least 1"):
        await queue.get_job_logs("j", limit=0)
    with pytest.raises(InvalidType, match="limit must be an int"):
        await queue.get_job_logs("j", limit="5")  # type: ignore[arg-type]


async def _is(found: Any, wanted: Any) -> bool:
    return bool(await found == wanted)


async def _has_lines(queue: Queue, job_id: str, count: int) -> bool:
    return len(await queue.get_job_logs(job_id)) == count


async def _ending_with(queue: Queue, job_id: str, last: str) -> list[str]:
    lines = await queue.get_job_logs(job_id, limit=5000)
    return lines if lines and lines[-1] == last else []


async def _is_done(queue: Queue) -> bool:
    counts = await queue.counts()
    return counts.waiting == counts.active == 0
