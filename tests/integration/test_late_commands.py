"""Commands that the network delivers to Redis after the worker that sent them has given them up."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis.asyncio

from pychasqui import Job, Queue, Worker
from pychasqui._redis.keys import Keys
from pychasqui._redis.reading import ReadRequest
from tests.chaos.boundaries import cut_at, name_of, names_in
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

GROUP = "default"


class Handler:
    """Runs each job until the test ends it."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.may_end: dict[Any, asyncio.Event] = defaultdict(asyncio.Event)

    async def __call__(self, job: Job) -> None:
        self.started.append((job.data, job.attempt))
        await self.may_end[job.data].wait()


def make_worker(queue: Queue, url: str, handler: Any, **options: Any) -> Worker:
    options = {"shutdown_deadline_s": 0.05, "events_enabled": False, **options}
    return Worker(queue.name, handler, redis_url=url, **options)


async def deliver_late(redis_url: str, request: bytes) -> None:
    """Has the server execute a request that was lost on its way."""
    address = urlsplit(redis_url)
    if address.scheme == "unix":
        reader, writer = await asyncio.open_unix_connection(address.path)
    else:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(request)
    assert not (await reader.readline()).startswith(b"-")
    writer.close()


def last_request(line: Proxy, name: str) -> bytes:
    return [request for request in line.requests if name_of(request) == name][-1]


async def owners(witness: redis.asyncio.Redis, queue: Queue) -> dict[bytes, bytes]:
    held = await witness.xpending_range(Keys(queue.name).stream, GROUP, "-", "+", 100)
    return {entry["message_id"]: entry["consumer"] for entry in held}


async def read_one_ahead(worker: Worker) -> None:
    """Has the worker read a job that must wait for a lane."""
    parts = worker._components
    assert parts is not None
    request = ReadRequest(1, 100, math.inf, parts.intake.take_in_new_unless_stale_and_start_lone_job, small_below=500)
    await (await parts.reading.send_read(GROUP, worker.consumer_id, request))
    assert parts.lanes.waiting_count == 1


async def test_a_hand_back_that_arrives_late_does_not_give_a_running_job_away(
    queue: Queue, redis_url: str, proxy: Proxy, witness: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pychasqui._worker.release.RELEASE_WITHIN_MS", 100)
    monkeypatch.setattr("pychasqui._worker.reclaimer.SCAN_S", 0.02)
    handler = Handler()
    async with make_worker(queue, proxy.url, handler, concurrency=1) as worker:
        await queue.add("do", "first")
        await eventually(lambda: handler.started == [("first", 0)])
        await queue.add("do", "second")
        await read_one_ahead(worker)
        cut = cut_at(proxy, "release_entries", "before request")
        assert worker._components is not None
        await worker._components.releaser.try_release_unstarted_jobs()
        assert cut.done.is_set()
        handler.may_end["first"].set()
        await eventually(lambda: ("second", 0) in handler.started)
        await deliver_late(redis_url, last_request(proxy, "release_entries"))
        assert list((await owners(witness, queue)).values()) == [worker.consumer_id.encode()]
        handler.may_end["second"].set()
    assert handler.started == [("first", 0), ("second", 0)]


async def test_a_read_that_arrives_late_strands_no_job(
    queue: Queue, redis_url: str, proxy: Proxy, witness: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it brings is pending for a worker that has given it up, and has looked for orphans since."""
    monkeypatch.setattr("pychasqui._worker.reclaimer.SCAN_S", 0.02)
    handler = Handler()
    async with make_worker(queue, proxy.url, handler, concurrency=1) as worker:
        await eventually(lambda: "XREADGROUP" in names_in(proxy))
        await queue.add("do", "first")
        await eventually(lambda: handler.started == [("first", 0)])
        await queue.add("do", "second")
        await deliver_late(redis_url, last_request(proxy, "XREADGROUP"))
        assert list((await owners(witness, queue)).values()) == [worker.consumer_id.encode()] * 2
        handler.may_end["first"].set()
        await eventually(lambda: handler.started == [("first", 0), ("second", 0)])
        handler.may_end["second"].set()


async def test_a_call_to_leave_the_group_that_arrives_late_does_not_end_the_lease_of_the_next_worker(
    queue: Queue, redis_url: str, proxy: Proxy, witness: redis.asyncio.Redis
) -> None:
    workers, record = Keys(queue.name).workers, Keys(queue.name).worker("pod-0")
    handler = Handler()
    async with make_worker(queue, proxy.url, handler, consumer_id="pod-0"):
        cut = cut_at(proxy, "leave_group", "before request")
    assert cut.done.is_set()
    late_call = next(request for request in proxy.requests if name_of(request) == "leave_group")
    async with make_worker(queue, redis_url, handler, consumer_id="pod-0"):
        await queue.add("do", "first")
        await eventually(lambda: handler.started == [("first", 0)])
        lease = await witness.zscore(workers, "pod-0")
        assert lease
        await deliver_late(redis_url, late_call)
        assert (await witness.zscore(workers, "pod-0") or 0) >= lease
        assert await witness.exists(record)
        handler.may_end["first"].set()
