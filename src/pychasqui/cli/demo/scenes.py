"""The small scenes after the burst: what a queue does besides running jobs once and at once. Played by who adds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from ... import JobFailed, Queue, QueueEvents, RepeatPattern
from .messages import Scene

TIMEOUT_S = 10.0
RESULTS = 100
DELAY_MS = 300
EVERY_MS = 100
FIRES = 5


async def play_scenes(queue: Queue, events: QueueEvents, show: Callable[[Scene], None]) -> None:
    """One after the other; one that goes wrong says so and the others go on."""
    for title, scene in (
        ("retried", retried),
        ("delayed", delayed),
        ("dead, replayed", replayed),
        ("schedule", scheduled),
        ("results", results),
    ):
        try:
            async with asyncio.timeout(TIMEOUT_S):
                show(Scene(title, await scene(queue, events), is_well=True))
        except Exception as error:  # noqa: BLE001  whatever it is, the demo has found it
            show(Scene(title, f"{type(error).__name__}: {error}"[:200], is_well=False))


async def retried(queue: Queue, events: QueueEvents) -> str:
    job = await queue.add("fail twice", attempts=3, backoff=50)
    began = monotonic()
    runs = await job.wait_for_result(timeout=TIMEOUT_S)
    if runs != 3:
        raise AssertionError(f"a job that fails twice ran {runs} times")
    return f"failed twice, done in run {runs}, {1000 * (monotonic() - began):.0f} ms after its add"


async def delayed(queue: Queue, events: QueueEvents) -> str:
    began = monotonic()
    job = await queue.add("echo", delay_ms=DELAY_MS)
    await job.wait_for_result(timeout=TIMEOUT_S)
    took_ms = 1000 * (monotonic() - began)
    if took_ms < DELAY_MS:
        raise AssertionError(f"a job that was due in {DELAY_MS} ms was done after {took_ms:.0f}")
    return f"due in {DELAY_MS} ms, done after {took_ms:.0f} ms"


async def replayed(queue: Queue, events: QueueEvents) -> str:
    job = await queue.add("hopeless until it is replayed", attempts=1)
    try:
        await job.wait_for_result(timeout=TIMEOUT_S)
    except JobFailed as failure:
        reason = failure.error
    else:
        raise AssertionError("a job that fails in its only run has a result")
    moved = await queue.dlq.replay()
    result = await job.wait_for_result(timeout=TIMEOUT_S)
    return f"died of {reason!r}, {moved} brought back, and it was {result}"


async def scheduled(queue: Queue, events: QueueEvents) -> str:
    stored = await queue.repeatables.upsert("tick", repeat=RepeatPattern.every(EVERY_MS), limit=FIRES)
    began, fired = monotonic(), 0
    async for event in events:
        if event.name == "completed" and event.job_name == "tick":
            fired += 1
            if fired == FIRES:
                break
    took_ms = 1000 * (monotonic() - began)
    if await queue.remove_repeatable_by_key(stored.key):
        raise AssertionError(f"a schedule of {FIRES} fires is still there")
    return f"every {EVERY_MS} ms, {fired} times, in {took_ms:.0f} ms"


async def results(queue: Queue, events: QueueEvents) -> str:
    began = monotonic()
    jobs = await queue.add_bulk([{"name": "echo", "data": number} for number in range(RESULTS)])
    answers = await queue.wait_for_results([job.id for job in jobs], timeout=TIMEOUT_S)
    if answers != list(range(RESULTS)):
        raise AssertionError("the results are not those of the jobs")
    return f"{RESULTS} came back in {1000 * (monotonic() - began):.0f} ms"
