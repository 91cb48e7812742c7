"""A handler that raises Snooze gets its job again, and no attempt is used up."""

from __future__ import annotations

from pychasqui import Job, Queue, Snooze, UnrecoverableError, Worker
from tests.support.waiting import eventually


async def test_a_job_with_one_attempt_comes_back_as_often_as_it_is_put_back(
    queue: Queue, redis_url: str, queue_name: str
) -> None:
    runs: list[tuple[int, int]] = []

    async def waits_for_its_time(job: Job) -> str:
        runs.append((job.attempt, job.snoozes))
        if len(runs) < 4:
            raise Snooze(0.01)
        return "done"

    async with Worker(queue_name, waits_for_its_time, redis_url=redis_url, store_results=True):
        job = await queue.add("mail", attempts=1)
        assert await job.wait_for_result() == "done"
    assert runs == [(0, 0), (0, 1), (0, 2), (0, 3)]


async def test_a_job_that_was_put_back_too_often_is_dead_and_a_replay_begins_from_the_start(
    queue: Queue, redis_url: str, queue_name: str
) -> None:
    runs: list[int] = []

    async def never_ready(job: Job) -> None:
        runs.append(job.snoozes)
        raise Snooze(0.01, limit=2, message="not ready")

    async with Worker(queue_name, never_ready, redis_url=redis_url):
        await queue.add("mail")
        letters = await eventually(queue.dlq.page)
        assert (letters[0].reason, letters[0].error_type, letters[0].error) == (
            "retries_exhausted",
            "Snooze",
            "not ready",
        )
        await queue.dlq.replay()
        await eventually(queue.dlq.count)
    assert runs == [0, 1, 2, 0, 1, 2]
    await queue.dlq.purge()


async def test_a_replay_of_a_job_that_was_put_back_and_died_of_an_error_begins_from_the_start(
    queue: Queue, redis_url: str, queue_name: str
) -> None:
    runs: list[int] = []

    async def fails_at_last(job: Job) -> None:
        runs.append(job.snoozes)
        if job.snoozes < 2:
            raise Snooze(0.01, limit=2)
        raise UnrecoverableError("no more")

    async with Worker(queue_name, fails_at_last, redis_url=redis_url):
        await queue.add("mail")
        await eventually(queue.dlq.count)
        await queue.dlq.replay()
        await eventually(queue.dlq.count)
    assert runs == [0, 1, 2, 0, 1, 2]
    await queue.dlq.purge()
