"""A job that fails on one kind is retried on the other: attempt, data, options and delay stay what they should be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Queue, RetryPolicy, Worker
from tests.interop.official import CONSUMER, Official, as_written
from tests.interop.runs import Handler, HandlerRun
from tests.interop.wire import Wire, pack, split, timeless
from tests.support.waiting import eventually

LATER = 60_000  # ms: not due before the test says so
ALWAYS = range(1000)
OPTIONS = [
    "",
    "attempts=4",
    "attempts=2**32 - 1",
    "backoff=60_000",
    "attempts=2, backoff=2**40",
    "backoff=BackoffSpec.fixed(60_000)",
    "attempts=300, backoff=BackoffSpec.fixed(60_000, jitter_ms=0)",
    "backoff=BackoffSpec.exponential(60_000)",
    "attempts=3, backoff=BackoffSpec.exponential(60_000, multiplier=1.5, max_ms=2**33, jitter_ms=25)",
    "backoff={'kind': 'fixed', 'delay_ms': 2**64 - 1, 'max_delay_ms': 70_000, 'multiplier': 1.0, 'jitter_ms': 300}",
]


class TestPassedOn:
    async def test_a_job_that_failed_there_is_promoted_and_retried_here(
        self, official: Official, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        job_id = await official.add("wörk", {"n": b"1"}, "backoff=1")
        await official.work(fails=[0], delayed_enabled=False)  # it does not promote
        await eventually(wire.members)
        await official.stop_working()
        handler = Handler()
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(lambda: handler.runs)
        assert official.runs == [HandlerRun(job_id, "wörk", "{'n': b'1'}", 0)]
        assert handler.runs == [HandlerRun(job_id, "wörk", "{'n': b'1'}", 1)]

    async def test_a_job_that_failed_here_is_promoted_and_retried_there(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        job = await queue.add("wörk", {"n": b"1"}, backoff=LATER)
        handler = Handler(fails=[0])
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(wire.members)
        await wire.make_due()
        await official.work()
        await eventually(lambda: official.runs)
        assert handler.runs == [HandlerRun(job.id, "wörk", "{'n': b'1'}", 0)]
        assert official.runs == [HandlerRun(job.id, "wörk", "{'n': b'1'}", 1)]

    async def test_a_job_that_goes_to_and_fro_keeps_its_options_and_counts_on(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        options = f"attempts=4, backoff=BackoffSpec.exponential({LATER}, multiplier=1.5, max_ms=90_000, jitter_ms=7)"
        job = await queue.add("to and fro", [1.0], **as_written(options))
        retry = [4, ["exponential", LATER, 90_000, 1.5, 7]]

        async def waits(attempt: int) -> bool:
            """The job as it should be, and nothing else."""
            envelope = pack(job.id, pack(1.0), job.created_at_ms, attempt, retry)
            return [split(member) for member in await wire.members()] == [(b"to and fro", envelope)]

        handler = Handler(fails=ALWAYS)
        rounds: list[tuple[Callable[[], Awaitable[Any]], ...]] = [
            (partial(waits, 1), partial(waits, 2)),
            (partial(waits, 3), wire.letters),
        ]
        for ends_there, ends_here in rounds:
            await official.work(fails=ALWAYS)
            await eventually(ends_there)
            await official.stop_working()
            await wire.make_due()
            async with Worker(queue_name, handler, redis_url=redis_url):
                await eventually(ends_here)
            await wire.make_due()
        assert [run.attempt for run in official.runs] == [0, 2]
        assert [run.attempt for run in handler.runs] == [1, 3]
        [letter] = await wire.letters()
        assert letter[b"reason"] == b"retries_exhausted"
        await wire.clear()


class TestDelayedSet:
    async def test_a_failed_job_of_both_kinds_waits_as_the_same_bytes(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        """The time at which it was made is left out."""
        jobs = [
            {"name": name, "data": {"n": number}, "job_id": f"job-{number}-{len(name)}", **as_written(options)}
            for number, options in enumerate(OPTIONS)
            for name in ("", "wörk")
        ]
        await queue.add_bulk(jobs)
        await official.work(fails=ALWAYS, delayed_enabled=False)
        await eventually(lambda: enough(wire, len(jobs)))
        await official.stop_working()
        theirs = sorted(map(timeless, await wire.members()))
        await wire.clear()
        await queue.add_bulk(jobs)
        policy = RetryPolicy(initial_ms=LATER, max_ms=LATER)
        async with Worker(queue_name, Handler(fails=ALWAYS), redis_url=redis_url, retry=policy):
            await eventually(lambda: enough(wire, len(jobs)))
        ours = sorted(map(timeless, await wire.members()))
        assert ours == theirs
        await wire.clear()

    async def test_a_failed_job_waits_equally_long_on_both_kinds(
        self, official: Official, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        backoffs = {
            "fixed": ["fixed", 40_000, None, None, 0],
            "fixed above its bound": ["fixed", 40_000, 30_000, None, 0],
            "exponential": ["exponential", 10_000, None, 1.5, 0],
            "exponential with a bound": ["exponential", 10_000, 25_000, 3.0, 0],
            "exponential by default": ["exponential", 5_000, None, None, 0],
            "of a strange kind": ["fibonacci", 10_000, None, 1.25, 0],
        }

        async def put_all() -> int:
            for label, backoff in backoffs.items():
                for attempt in range(6):
                    await wire.put(d=pack(f"{label}, {attempt}", b"\xc0", 2**40, attempt, [None, backoff]))
            return len(backoffs) * 6

        count = await put_all()
        await official.work(fails=ALWAYS)
        await eventually(lambda: enough(wire, count))
        theirs = await wire.due_in_ms()
        await official.stop_working()
        await wire.clear()
        await put_all()
        async with Worker(queue_name, Handler(fails=ALWAYS), redis_url=redis_url):
            await eventually(lambda: enough(wire, count))
            ours = await wire.due_in_ms()
        assert ours == pytest.approx(theirs, abs=1000)
        await wire.clear()

    async def test_one_promoter_leads_and_the_other_kind_inherits_the_lease(
        self,
        official: Official,
        queue: Queue,
        redis_url: str,
        queue_name: str,
        wire: Wire,
        witness: redis.asyncio.Redis,
    ) -> None:
        async def leader() -> bytes | None:
            return await witness.get(wire.promoter_lock)

        async def leads(consumer: str) -> bool:
            return await leader() == consumer.encode()

        handler = Handler(fails=[0])
        worker = Worker(queue_name, handler, redis_url=redis_url, consumer_id="ours")
        async with worker:
            await eventually(lambda: leads("ours"))
            await official.work(fails=[0])
            jobs = await queue.add_bulk({"name": "n", "data": n, "backoff": n % 500} for n in range(300))
            leaders = set()
            while len(handler.ended) + len(official.ended) < 600:
                leaders.add(await leader())
            assert leaders == {b"ours"}
        await eventually(lambda: leads(CONSUMER))
        runs = [(run.id, run.attempt) for run in handler.runs + official.runs]
        assert sorted(runs) == sorted((job.id, attempt) for job in jobs for attempt in (0, 1))
        async with Worker(queue_name, handler, redis_url=redis_url, consumer_id="ours"):
            await official.add("later", None, "delay_ms=300")
            with pytest.raises(AssertionError, match="not true within"):
                await eventually(lambda: leads("ours"), timeout=0.7)
            await official.stop_working()
            await eventually(lambda: leads("ours"))


async def enough(wire: Wire, count: int) -> bool:
    return len(await wire.members()) == count
