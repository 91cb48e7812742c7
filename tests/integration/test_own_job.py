"""A Job belongs to its handler: changes that the handler makes do not reach the worker."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pychasqui import InMemorySink, Job, Queue, RetryPolicy, Worker, logs
from tests.support.streams import Stream
from tests.support.waiting import eventually

AT_ONCE = RetryPolicy(initial_ms=1, max_ms=1, jitter_ms=0)


class Unfriendly:
    """Raises when it is shown, compared, hashed or measured."""

    def _raise(self, *_: object) -> Any:
        raise RuntimeError("do not touch me")

    __repr__ = __str__ = __eq__ = __hash__ = __len__ = __bool__ = __iter__ = _raise


def spoil(job: Job, field: str, value: Any) -> None:
    if value is DEL:
        delattr(job, field)
    else:
        setattr(job, field, value)


DEL = object()
ODD_VALUES: tuple[Any, ...] = ("other", "", "\ud800", None, 0, -5, 10**30, 1.5, b"x", True, [], Unfriendly(), DEL)
PUBLIC = ("id", "name", "data", "attempt", "created_at_ms", "is_new", "has_replaced")
PRIVATE = ("_reporter", "_own_id", "_own_name", "_entry_id", "_extras", "_queue")


def test_every_field_of_a_job_is_spoiled_by_the_tests() -> None:
    assert set(Job.__struct_fields__) == {*PUBLIC, *PRIVATE}


@pytest.mark.parametrize("field", (*PUBLIC, *PRIVATE))
async def test_a_spoiled_job_fails_runs_again_and_is_buried_as_it_was_added(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream, field: str
) -> None:
    seen: list[tuple[Any, ...]] = []

    async def handle(job: Job) -> None:
        seen.append((job.id, job.name, job.data["value"], job.attempt, job.created_at_ms))
        value = ODD_VALUES[job.data["value"]]
        job.data.clear()
        spoil(job, field, value)
        raise ValueError("no")

    sink = InMemorySink()
    async with make_worker(handle, max_attempts=3, retry=AT_ONCE, metrics=sink):
        added = [await queue.add("send", {"value": number}) for number in range(len(ODD_VALUES))]
        await eventually(lambda: has_letters(queue, len(added)))
        assert await eventually(stream.is_settled)
    letters = await queue.dlq.page()
    runs = [(job.id, "send", number, run, job.created_at_ms) for number, job in enumerate(added) for run in range(3)]
    assert sorted(seen) == sorted(runs)
    assert sorted((letter.job_id or "", letter.name, letter.data, letter.attempts) for letter in letters) == sorted(
        (job.id, "send", {"value": number}, 3) for number, job in enumerate(added)
    )
    assert Counter((ran.kind, ran.attempt, ran.name) for ran in sink.job_outcomes) == {
        ("err", run, "send"): len(added) for run in (1, 2, 3)
    }
    await queue.dlq.purge()


async def has_letters(queue: Queue, count: int) -> bool:
    return len(await queue.dlq.page()) == count


@pytest.mark.parametrize("field", (*PUBLIC, *PRIVATE))
async def test_a_spoiled_job_is_done_under_its_own_id(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream, field: str
) -> None:
    async def handle(job: Job) -> int:
        number: int = job.data
        spoil(job, field, ODD_VALUES[number])
        return number

    async with make_worker(handle, store_results=True):
        for number in range(len(ODD_VALUES)):
            added = await queue.add("send", number, job_id="mine")
            assert added.is_new  # the uniqueness key of the previous job is gone with it
            assert await eventually(stream.is_settled)
            # Not by a wait, which may return the result of the previous job of the id.
            assert await queue.get_job_result("mine") == number


async def test_the_progress_of_a_renamed_job_is_kept_under_its_own_id(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream
) -> None:
    async def handle(job: Job) -> None:
        job.id = job.name = "other"
        await job.progress(40)
        await job.log("a line")

    async with make_worker(handle):
        added = await queue.add("send")
        await eventually(stream.is_settled)
    assert await queue.get_job_logs(added.id) == ["a line"]
    assert await queue.get_job_logs("other") == []


async def test_a_renamed_job_is_logged_under_its_own_name(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(job_filter := logs.JobFilter())

    async def handle(job: Job) -> None:
        job.id, job.name, job.attempt = Unfriendly(), None, Unfriendly()  # type: ignore[assignment]
        logging.getLogger("shop").warning("still here")

    try:
        async with make_worker(handle):
            added = await queue.add("send")
            await eventually(stream.is_settled)
    finally:
        caplog.handler.removeFilter(job_filter)
    (line,) = [record for record in caplog.records if record.name == "shop"]
    assert (line.__dict__["job_id"], line.__dict__["job_name"], line.__dict__["attempt"]) == (added.id, "send", 0)


class Thing:
    pass


async def test_a_job_in_a_reference_cycle_is_freed(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    things: list[weakref.ref[Thing]] = []
    caplog.set_level(logging.CRITICAL, "chasqui.worker")  # pytest keeps the records, and they have the error

    async def handle(job: Job) -> None:
        thing = Thing()
        things.append(weakref.ref(thing))
        job.data["job"], job.data["thing"] = job, thing
        try:
            raise ValueError
        except ValueError as error:
            job.data["error"] = error
            if job.name == "fails":
                raise

    async with make_worker(handle, max_attempts=1):
        await queue.add("send", {})
        await queue.add("fails", {})
        await eventually(lambda: len(things) == 2)
        await eventually(stream.is_settled)
        gc.collect()
        assert [thing() for thing in things] == [None, None]
    assert await queue.dlq.purge() == 1


async def test_a_job_is_pickled_and_copied_with_its_fields_and_without_worker_and_queue(
    queue: Queue, make_worker: Callable[..., Worker], stream: Stream
) -> None:
    jobs: list[Job] = []

    async def handle(job: Job) -> None:
        copies = (pickle.loads(pickle.dumps(job)), copy.deepcopy(job))  # as a process pool and dataclasses.asdict() do
        jobs.extend((job, *copies))

    added = await queue.add("resize", {"path": "a.png"}, job_id="one")
    async with make_worker(handle):
        await eventually(lambda: jobs)
    for job in (*jobs[1:], pickle.loads(pickle.dumps(added)), copy.deepcopy(added)):
        assert [getattr(job, field) for field in PUBLIC] == [getattr(added, field) for field in PUBLIC]
        assert job.data is not added.data
        with pytest.raises(RuntimeError, match="only a handler"):
            job.progress(50)
        with pytest.raises(RuntimeError, match="not returned by add"):
            await job.wait_for_result()
