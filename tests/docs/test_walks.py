"""The walks of the page "How a job moves" are those of the code, and no walk comes to a file from two others."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Self
from uuid import uuid4

import pytest

from pychasqui import Job, Queue, RepeatPattern, UnrecoverableError, Worker
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
PACKAGE = f"{ROOT / 'src' / 'pychasqui'}/"
PAGE = (ROOT / "docs" / "explanation" / "how-a-job-moves.md").read_text()
ROWS = PAGE.partition("## Each walk")[2].partition("\n## ")[0]
WALKS = {row[0]: re.findall(r"`([\w/]+\.py)`", row[1]) for row in re.findall(r"^\| ([\w ,]+) \| (`.*)$", ROWS, re.M)}
WRAPPERS = (f"{PACKAGE}_redis/replies.py", "<string>")  # a decorator of methods, and what dataclasses generate
DOOR = {f"_redis/{name}.py" for name in ("calls", "connection", "keys", "replies", "scripts", "socket")}
BESIDE = {  # what is done on the way, and not with the job
    "_core/checks.py": "an argument is checked",
    "_core/guarded_log.py": "a line is logged",
    "_core/pauses.py": "an outage is over",
    "_core/printable.py": "a line is logged",
    "_redis/command_replies.py": "a reply is read",
    "_redis/event_batch.py": "events are written",
    "_redis/reading.py": "more entries are read",
    "_wire/lenient.py": "a reply is read",
    "_worker/event_writer.py": "an event is queued",
    "_worker/group_recovery.py": "entries are expected",
    "_worker/leader.py": "the next look is planned",
    "_worker/outage.py": "an outage is over",
    "_worker/promoter.py": "the next look is planned",
    "_worker/service.py": "a service that sleeps is woken",
    "_worker/shared.py": "a part that waits is woken",
    "queue.py": "a part of the queue asks for the session of its loop",
}


class Trace:
    """The calls of this thread from one file of the package into another. It sees through WRAPPERS."""

    def __init__(self, *, ends_with_reply: bool = False) -> None:
        self.calls: list[tuple[str, str]] = []
        self._ends_with_reply = ends_with_reply

    def __enter__(self) -> Self:
        sys.setprofile(self._note_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note_call(self, frame: FrameType, event: str, _: Any) -> None:
        callee, back = frame.f_code.co_filename, frame.f_back
        if event != "call" or not callee.startswith(PACKAGE):
            return
        if self._ends_with_reply and frame.f_code.co_name == "buffer_updated":
            sys.setprofile(None)
        while back is not None and back.f_code.co_filename in WRAPPERS:
            back = back.f_back
        caller = "" if back is None else back.f_code.co_filename
        if callee != caller:
            self.calls.append((caller.removeprefix(PACKAGE), callee.removeprefix(PACKAGE)))

    def check(self, walk: list[str]) -> None:
        """Files that come later may call an earlier one: that is the way back up."""
        calls = self.calls[[callee for _, callee in self.calls].index(walk[0]) :]
        place = {file: number for number, file in enumerate(walk)}
        down = [call for call in calls if place.get(call[0], len(walk)) < place.get(call[1], -1)]
        assert [walk[0], *dict.fromkeys(callee for _, callee in down)] == walk
        callers = {file: {caller for caller, callee in down if callee == file} for file in walk[1:]}
        assert [file for file, those in callers.items() if len(those) > 1] == []
        beside = {callee for caller, callee in calls if caller in place and callee not in place}
        assert beside <= DOOR | BESIDE.keys()


Act = Callable[[Queue], Awaitable[object]]
PRODUCER: dict[str, Act] = {
    "a job is added": lambda queue: queue.add("mail", 1),
    "a delayed job is added": lambda queue: queue.add("mail", 1, delay=timedelta(hours=1)),
    "a repeatable is stored": lambda queue: queue.repeatables.upsert(
        "mail", 1, repeat=RepeatPattern.every(3_600_000), key=uuid4().hex
    ),
}


def test_no_walk_of_the_page_has_a_file_twice() -> None:
    assert len(WALKS) == 9
    assert [title for title, walk in WALKS.items() if len(set(walk)) < len(walk)] == []


@pytest.mark.parametrize("title", PRODUCER)
async def test_the_way_down_of_a_producer_comes_to_each_file_once(redis_url: str, queue_name: str, title: str) -> None:
    # A bounded queue is added to by a script on each server.
    async with Queue(queue_name, redis_url=redis_url, max_stream_len=1000) as queue:
        for _ in range(2):  # behind the first one the name of the queue is registered
            await PRODUCER[title](queue)
        with Trace(ends_with_reply=title.endswith("added")) as trace:
            await PRODUCER[title](queue)
    trace.check(WALKS[title])


async def handle(job: Job) -> int:
    if job.data == "retry":
        raise LookupError("no such customer")
    if job.data == "dead":
        raise UnrecoverableError("no such customer")
    return 5


OUTCOMES = {"a job is run": "done", "a job fails and is retried": "retry", "a job fails and is dead": "dead"}


@pytest.mark.parametrize("title", OUTCOMES)
async def test_the_way_down_of_a_worker_comes_to_each_file_once(
    redis_url: str, queue_name: str, title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pychasqui.logs._filters_made", 0)  # by tests before: log records of jobs go through logs.py
    async with (
        Queue(queue_name, redis_url=redis_url) as queue,
        Worker(queue_name, handle, redis_url=redis_url),
    ):

        async def has_settled_all() -> bool:
            counts = await queue.counts()
            return not counts.waiting and not counts.active

        await queue.add("mail", OUTCOMES[title], backoff=3_600_000)
        await eventually(has_settled_all)
        with Trace() as trace:  # not of the first one, whose failure is logged with its frames
            await queue.add("mail", OUTCOMES[title], backoff=3_600_000)
            await eventually(has_settled_all)
    trace.check(WALKS[title])


async def test_the_way_down_of_a_promotion_comes_to_each_file_once(redis_url: str, queue_name: str) -> None:
    ran: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, ran.put, redis_url=redis_url):
        await queue.add("mail", 1, delay_ms=200)
        await ran.get()
        await queue.add("mail", 1, delay_ms=200)
        with Trace() as trace:
            await ran.get()
    trace.check(WALKS["a delayed job is promoted"])


async def test_the_way_down_of_a_fire_comes_to_each_file_once(redis_url: str, queue_name: str) -> None:
    fired: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=redis_url) as queue, Worker(queue_name, fired.put, redis_url=redis_url):
        await queue.repeatables.upsert("mail", 1, repeat=RepeatPattern.every(200))
        await fired.get()
        with Trace() as trace:
            await fired.get()
    trace.check(WALKS["a repeatable is fired"])


async def test_the_way_down_of_an_awaited_result_comes_to_each_file_once(redis_url: str, queue_name: str) -> None:
    async with (
        Queue(queue_name, redis_url=redis_url) as queue,
        Worker(queue_name, handle, redis_url=redis_url, store_results=True),
    ):
        job = await queue.add("mail")
        await queue.wait_for_result(job.id)
        with Trace() as trace:
            await queue.wait_for_result(job.id)
    trace.check(WALKS["a result is awaited"])
