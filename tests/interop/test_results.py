"""Results of both kinds: written by one, read and waited for by the other."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from pychasqui import Job, JobFailed, Queue, Worker, results
from tests.interop.official import Official
from tests.interop.wire import Wire
from tests.support.waiting import eventually

VALUES: tuple[Any, ...] = (0, -1, 2**63, 1.5, True, "ü", b"\x00", [1, None], {"r": {"deep": [1]}}, "x" * 1000)


async def echo(job: Job) -> Any:
    return job.data


async def test_results_of_an_official_worker_can_be_read_and_waited_for_here(
    official: Official, queue: Queue, queue_name: str, witness: Any
) -> None:
    await official.work(returns_data=True, store_results=True, events_enabled=True)
    jobs = await queue.add_bulk({"name": "echo", "data": value} for value in VALUES)
    assert await queue.wait_for_results([job.id for job in jobs], timeout=40) == list(VALUES)
    assert await queue.get_job_result_bulk([job.id for job in jobs]) == list(VALUES)


async def test_our_results_are_read_by_official_programs_and_have_the_same_bytes(
    official: Official, queue: Queue, redis_url: str, queue_name: str, witness: Any
) -> None:
    def key(job: Job) -> str:
        return f"{{chasqui:{queue_name}}}:result:{job.id}"

    async with Worker(queue_name, echo, redis_url=redis_url, store_results=True):
        ours = await queue.add_bulk({"name": "echo", "data": value} for value in VALUES)
        await queue.wait_for_results([job.id for job in ours])
    assert await official.results([job.id for job in ours]) == list(VALUES)
    await official.work(returns_data=True, store_results=True)
    theirs = await queue.add_bulk({"name": "echo", "data": value} for value in VALUES)
    await eventually(lambda: queue.get_job_result(theirs[-1].id))
    await eventually(lambda: _has_all(witness, [key(job) for job in theirs]))
    assert await witness.mget(*map(key, ours)) == await witness.mget(*map(key, theirs))


async def test_a_result_of_none_is_read_as_none_by_the_other_kind(
    official: Official, queue: Queue, redis_url: str, queue_name: str
) -> None:
    """Official workers store no result for None, so only the completed event says that the job is done."""
    async with Worker(queue_name, echo, redis_url=redis_url, store_results=True):
        job = await queue.add("echo")
        assert await job.wait_for_result() is None
    assert await official.results([job.id]) == [None]
    await official.work(returns_data=True, store_results=True, events_enabled=True)
    assert await (await queue.add("echo")).wait_for_result(timeout=40) is None


async def test_a_job_that_dies_there_reports_its_error_here_at_once(
    official: Official, queue: Queue, wire: Wire
) -> None:
    await official.work(fails=[0, 1], events_enabled=True, store_results=True)
    started = monotonic()
    with pytest.raises(JobFailed) as dead:
        await (await queue.add("fail", attempts=2, backoff=1)).wait_for_result()
    error = dead.value
    assert (error.reason, error.error_type, error.error) == ("retries_exhausted", "", "fails as planned")
    assert error.attempts == 2
    assert monotonic() - started < 5
    await wire.clear()


async def test_a_job_that_gives_up_there_is_reported_as_unrecoverable(
    official: Official, queue: Queue, wire: Wire
) -> None:
    await official.work(gives_up=True, events_enabled=True)
    with pytest.raises(JobFailed, match=r"1 runs \(unrecoverable\): error: gives up"):
        await (await queue.add("fail")).wait_for_result()
    await wire.clear()


async def test_a_second_look_finds_the_result_of_a_worker_without_events(
    official: Official, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "SECOND_LOOK_S", 0.1)
    job = await queue.add("echo", 1, delay_ms=50)
    await official.work(returns_data=True, store_results=True)
    assert await job.wait_for_result(timeout=40) == 1


async def _has_all(witness: Any, keys: list[str]) -> bool:
    return None not in await witness.mget(*keys)
