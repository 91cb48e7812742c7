"""Repeatables: stored, listed, fired, paused, set aside. Which windows a pattern has is tested in tests/unit.

every fires again and again, cron of 6 fields       TestFiring.test_a_pattern_fires_again_and_again
shorter than the tick                               TestFiring.test_an_interval_shorter_than_the_tick_loses_nothing
limit                                               TestFiring.test_a_limit_is_kept_and_then_nothing_is_left
on time: once                                       TestMissed.test_a_repeatable_in_time_fires_under_every_policy
two schedulers                                      TestFiring.test_several_workers_fire_once
skip, fire-once, fire-all, cap, limit, end, IANA    TestMissed
remove, list, upsert in its place                   TestStoring
names, per-fire attempts                            TestJobs
broken specs                                        TestPoison
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from datetime import timedelta
from hashlib import sha1
from itertools import pairwise
from math import inf
from typing import Any

import pytest
import redis.asyncio

from pychasqui import BackoffSpec, InvalidArgument, Job, MissedFiresPolicy, Queue, RepeatPattern, Worker, next_fires
from pychasqui._core.fire_times import LAST_MS
from pychasqui._core.repeat_pattern import RepeatSpec
from pychasqui._redis.repeatables import RepeatablesBroker
from pychasqui._wire.repeatable import encode_spec
from tests.support.proxy import Proxy
from tests.support.streams import Stream
from tests.support.waiting import eventually
from tests.support.zones import without_zone_database

every, cron = RepeatPattern.every, RepeatPattern.cron
HOUR_MS = 3_600_000
pytestmark = pytest.mark.usefixtures("stream", "repeats")  # so that what is left is removed


class Fired:
    """A handler that records the fired jobs."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    async def __call__(self, job: Job) -> None:
        self.jobs.append(job)

    def count(self, name: str) -> int:
        return sum(job.name == name for job in self.jobs)

    def windows(self, name: str) -> list[int]:
        windows = [job.scheduled_at_ms for job in self.jobs if job.name == name]
        assert None not in windows
        return sorted(window for window in windows if window is not None)


class Repeats:
    """The repeat set as redis-py sees it."""

    def __init__(self, witness: Any, queue_name: str) -> None:
        self._witness = witness
        self.prefix = f"{{chasqui:{queue_name}}}:repeat"

    async def scores(self) -> dict[str, float]:
        found = await self._witness.zrange(self.prefix, 0, -1, withscores=True)
        return {key.decode(errors="replace"): score for key, score in found}

    async def hashes(self) -> int:
        return len([key async for key in self._witness.scan_iter(f"{self.prefix}:spec:*", count=1000)])

    async def backdate(self, key: str, by_ms: int) -> int:
        """Makes it due in the past, as if no scheduler had run. Returns the new score."""
        score = int(time.time() * 1000) - by_ms
        assert await self._witness.zadd(self.prefix, {key: score}, xx=True, ch=True) == 1
        return score

    async def put(self, key: bytes, spec: bytes | None, score: float = 1, **fields: Any) -> None:
        await self._witness.zadd(self.prefix, {key: score})
        if spec is not None:
            await self._witness.hset(f"{self.prefix}:spec:".encode() + key, mapping={"spec": spec, **fields})

    async def clear(self) -> None:
        for key in [key async for key in self._witness.scan_iter(f"{self.prefix}*", count=1000)]:
            await self._witness.delete(key)


@pytest.fixture
async def repeats(witness: redis.asyncio.Redis, queue_name: str) -> AsyncIterator[Repeats]:
    repeats = Repeats(witness, queue_name)
    yield repeats
    await repeats.clear()


@pytest.fixture
def make_worker(redis_url: str, queue_name: str) -> Callable[..., Worker]:
    def make(handler: Any, **options: Any) -> Worker:
        defaults: dict[str, Any] = {"redis_url": redis_url, "scheduler_tick_ms": 100}
        return Worker(queue_name, handler, **defaults | options)

    return make


class TestStoring:
    async def test_a_repeatable_is_stored_listed_and_removed(self, queue: Queue, repeats: Repeats) -> None:
        now_ms = time.time() * 1000
        job = await queue.upsert_repeatable_job("tick", {"n": 1}, repeat=every(HOUR_MS), limit=5)
        assert (job.id, job.name, job.data) == (f"tick::every:{HOUR_MS}", "tick", {"n": 1})
        await queue.add("tock", repeat=cron("0 9 * * *", "Europe/Berlin"), missed_fires=MissedFiresPolicy.fire_once())
        first, second = await queue.get_repeatable_jobs()
        assert {first.job_name, second.job_name} == {"tick", "tock"}
        tick, tock = (first, second) if first.job_name == "tick" else (second, first)
        assert (tick.key, tick.pattern, tick.limit, tick.missed_fires) == (job.id, every(HOUR_MS), 5, None)
        assert -1 < tick.next_fire_ms - now_ms - HOUR_MS < 1000
        assert (tick.fired, tick.is_paused) == (0, False)
        assert tock.key == "tock::cron:0 9 * * *:Europe/Berlin"
        assert tock.missed_fires == MissedFiresPolicy.fire_once()
        assert await queue.remove_repeatable_by_key(tick.key)
        assert not await queue.remove_repeatable_by_key(tick.key)
        assert [meta.key for meta in await queue.get_repeatable_jobs()] == [tock.key]
        assert await queue.remove_repeatable_by_key(tock.key)
        assert (await repeats.scores(), await repeats.hashes()) == ({}, 0)

    async def test_a_page_holds_the_repeatables_that_fire_next(self, queue: Queue) -> None:
        for minutes in (50, 10, 30, 20, 40):
            await queue.upsert_repeatable_job(f"in-{minutes}", repeat=every(timedelta(minutes=minutes)))
        page = await queue.get_repeatable_jobs(limit=3)
        assert [meta.job_name for meta in page] == ["in-10", "in-20", "in-30"]
        assert await queue.get_repeatable_jobs(limit=0) == []
        assert len(await queue.get_repeatable_jobs()) == 5

    async def test_a_list_of_many_repeatables_takes_few_round_trips(self, queue: Queue, redis_url: str) -> None:
        names = [f"in-{minutes}" for minutes in range(1, 121)]
        for minutes, name in enumerate(names, 1):
            await queue.upsert_repeatable_job(name, repeat=every(timedelta(minutes=minutes)))
        paused = f"in-60::every:{60 * 60_000}"
        assert await queue.repeatables.pause(paused)
        async with Proxy(redis_url) as proxy, Queue(queue.name, redis_url=proxy.url) as far:
            assert await far.get_repeatable_jobs(limit=1)
            proxy.delay(20)
            began = time.monotonic()
            page = await far.get_repeatable_jobs(limit=200)
            assert time.monotonic() - began < 2  # one after another they would take twice 20 ms each: 4.8 s
        assert [meta.job_name for meta in page] == [*names[:59], *names[60:], "in-60"]

    async def test_the_same_pattern_stands_in_the_place_of_the_first(self, queue: Queue, repeats: Repeats) -> None:
        for number in range(3):
            await queue.upsert_repeatable_job("tick", number, repeat=every(HOUR_MS), limit=7 + number)
        (meta,) = await queue.get_repeatable_jobs()
        found = await queue.repeatables.get(meta.key)
        assert found is not None
        assert (meta.limit, found.data, await repeats.hashes()) == (9, 2, 1)

    async def test_a_chosen_key_keeps_equal_repeatables_apart(self, queue: Queue) -> None:
        for key in ("a", "b", "b"):
            job = await queue.upsert_repeatable_job("tick", repeat=every(HOUR_MS), key=key)
            assert job.id == key
        assert {meta.key for meta in await queue.get_repeatable_jobs()} == {"a", "b"}

    @pytest.mark.parametrize("name", ("", "two\nlines", "ü" * 128))
    async def test_a_repeatable_of_any_name_is_found_by_its_key(
        self, queue: Queue, repeats: Repeats, name: str
    ) -> None:
        job = await queue.upsert_repeatable_job(name, repeat=every(HOUR_MS))
        (meta,) = await queue.get_repeatable_jobs()
        assert meta.key == job.id
        assert await queue.repeatables.get(job.id) is not None
        assert await queue.remove_repeatable_by_key(job.id)

    async def test_a_preview_says_when_it_fires(self, queue: Queue) -> None:
        job = await queue.upsert_repeatable_job("tick", repeat=cron("*/5 * * * *"), limit=3)
        (meta,) = await queue.get_repeatable_jobs()
        times = await queue.repeatables.next_fires(job.id, 5)
        assert times == next_fires(cron("*/5 * * * *"), 3, int(time.time() * 1000))
        assert times[0] == meta.next_fire_ms
        assert await queue.repeatables.next_fires("unknown") == []

    async def test_bounds_are_kept(self, queue: Queue) -> None:
        start_ms = int(time.time() * 1000) + HOUR_MS
        job = await queue.upsert_repeatable_job(
            "tick", repeat=every(1000), start_after_ms=start_ms, end_before_ms=start_ms + 3500
        )
        assert await queue.repeatables.next_fires(job.id, 9) == [start_ms + n * 1000 for n in (1, 2, 3)]
        with pytest.raises(InvalidArgument, match="would never fire"):
            await queue.upsert_repeatable_job("tick", repeat=every(1000), end_before_ms=start_ms - HOUR_MS)


class TestAtEveryStart:
    """A program stores its repeatables at every start, with each deployment."""

    async def test_the_same_times_keep_the_next_fire_the_count_and_the_pause(
        self, queue: Queue, repeats: Repeats, witness: Any
    ) -> None:
        first = await queue.repeatables.upsert("tick", 1, repeat=every(24 * HOUR_MS), limit=9)
        due_ms = await repeats.backdate(first.key, HOUR_MS)
        await witness.hset(f"{repeats.prefix}:spec:{first.key}", "fired", 4)
        again = await queue.repeatables.upsert("tick", 1, repeat=every(24 * HOUR_MS), limit=9)
        assert (again.next_fire_ms, again.fired, again.is_paused) == (due_ms, 4, False)
        assert await repeats.scores() == {first.key: due_ms}
        await queue.repeatables.pause(first.key)
        again = await queue.repeatables.upsert("tick", 1, repeat=every(24 * HOUR_MS), limit=9)
        assert (again.next_fire_ms, again.fired, again.is_paused) == (due_ms, 4, True)
        (meta,) = await queue.get_repeatable_jobs()
        assert meta == again
        assert await repeats.scores() == {}

    async def test_a_change_of_anything_but_the_times_keeps_the_next_fire(self, queue: Queue, repeats: Repeats) -> None:
        first = await queue.repeatables.upsert("tick", 1, repeat=cron("0 9 * * *", "Asia/Tokyo"), key="k", attempts=3)
        due_ms = await repeats.backdate("k", HOUR_MS)
        assert first.next_fire_ms > due_ms
        await queue.repeatables.upsert(
            "tock",
            2,
            repeat=cron("0 9 * * *", "Asia/Tokyo"),
            key="k",
            limit=5,
            backoff=7,
            missed_fires=MissedFiresPolicy.fire_once(),
        )
        found = await queue.repeatables.get("k")
        assert found is not None
        assert (found.meta.next_fire_ms, found.meta.job_name, found.meta.limit, found.data) == (due_ms, "tock", 5, 2)
        assert found.meta.missed_fires == MissedFiresPolicy.fire_once()
        assert found.retry is not None
        assert (found.retry.max_attempts, found.retry.backoff) == (None, BackoffSpec("fixed", 7))

    @pytest.mark.parametrize(
        "changed",
        (
            {"repeat": cron("0 9 * * *", "Asia/Seoul")},
            {"repeat": cron("0 10 * * *", "Asia/Tokyo")},
            {"repeat": every(HOUR_MS)},
            {"start_after_ms": 1},
            {"end_before_ms": 2**45},
        ),
        ids=("zone", "expression", "kind", "start", "end"),
    )
    async def test_a_change_of_the_times_begins_from_the_start(
        self, queue: Queue, repeats: Repeats, witness: Any, changed: dict[str, Any]
    ) -> None:
        options: dict[str, Any] = {"repeat": cron("0 9 * * *", "Asia/Tokyo"), "key": "k"}
        await queue.repeatables.upsert("tick", **options)
        await repeats.backdate("k", HOUR_MS)
        await witness.hset(f"{repeats.prefix}:spec:k", "fired", 4)
        await queue.repeatables.pause("k")
        again = await queue.repeatables.upsert("tick", **options | changed)
        assert (again.next_fire_ms > time.time() * 1000, again.fired, again.is_paused) == (True, 0, False)
        assert await repeats.scores() == {"k": again.next_fire_ms}

    async def test_a_time_that_passed_while_nothing_ran_is_fired_by_its_policy(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats
    ) -> None:
        """A daily one: the app was down at nine, and stores it again as it starts."""
        fired = Fired()
        daily: dict[str, Any] = {"repeat": every(24 * HOUR_MS), "missed_fires": MissedFiresPolicy.fire_once()}
        job = await queue.upsert_repeatable_job("report", **daily)
        due_ms = await repeats.backdate(job.id, HOUR_MS)
        await queue.upsert_repeatable_job("report", **daily)
        async with make_worker(fired):
            await eventually(lambda: fired.jobs)
        assert fired.windows("report") == [due_ms]
        assert (await repeats.scores())[job.id] == due_ms + 24 * HOUR_MS

    async def test_programs_that_start_at_the_same_time_store_one(self, queue: Queue, repeats: Repeats) -> None:
        await queue.repeatables.upsert("tick", 0, repeat=every(HOUR_MS), key="k")
        stored = await asyncio.gather(
            *(queue.repeatables.upsert("tick", n, repeat=every(2 * HOUR_MS), key="k") for n in range(10))
        )
        assert len({meta.next_fire_ms for meta in stored}) == 1
        assert await repeats.scores() == {"k": stored[0].next_fire_ms}

    async def test_a_stored_repeatable_that_cannot_be_read_is_replaced(self, queue: Queue, repeats: Repeats) -> None:
        await repeats.put(b"k", b"\xc1", 5, fired="x")
        stored = await queue.repeatables.upsert("tick", repeat=every(HOUR_MS), key="k")
        assert (stored.fired, await repeats.scores()) == (0, {"k": stored.next_fire_ms})


class TestFiring:
    async def test_a_pattern_fires_again_and_again(self, queue: Queue, make_worker: Callable[..., Worker]) -> None:
        fired = Fired()
        async with make_worker(fired):
            await queue.upsert_repeatable_job("every", {"n": 1}, repeat=every(50))
            await queue.upsert_repeatable_job("cron", repeat=cron("* * * * * *"))
            await eventually(lambda: fired.count("every") >= 5 and fired.count("cron") >= 2)
        windows = fired.windows("every")
        assert all(later - earlier == 50 for earlier, later in pairwise(windows))
        assert all(window % 1000 == 0 for window in fired.windows("cron"))
        assert {repr(job.data) for job in fired.jobs if job.name == "every"} == {"{'n': 1}"}
        assert len({job.id for job in fired.jobs}) == len(fired.jobs)

    @pytest.mark.parametrize("tick_ms", (50, 1500))
    async def test_an_interval_shorter_than_the_tick_loses_nothing(
        self, queue: Queue, make_worker: Callable[..., Worker], tick_ms: int
    ) -> None:
        """A10. The seconds are the measurement, not a wait."""
        fired = Fired()
        async with make_worker(fired, scheduler_tick_ms=tick_ms):
            start = time.monotonic()
            await queue.upsert_repeatable_job("fast", repeat=every(20))
            await asyncio.sleep(2)
        took_s = time.monotonic() - start
        windows = fired.windows("fast")
        assert 85 <= len(windows) <= took_s / 0.020 + 1
        assert windows == list(range(windows[0], windows[-1] + 1, 20))

    async def test_a_limit_is_kept_and_then_nothing_is_left(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats
    ) -> None:
        fired = Fired()
        async with make_worker(fired):
            await queue.upsert_repeatable_job("twice", repeat=every(30), limit=2)
            await queue.upsert_repeatable_job("many", repeat=every(30), limit=8)
            await eventually(lambda: fired.count("many") == 8)
            assert (await repeats.scores(), await repeats.hashes()) == ({}, 0)
        assert fired.count("twice") == 2

    async def test_a_changed_pattern_starts_counting_from_the_beginning(
        self, queue: Queue, make_worker: Callable[..., Worker]
    ) -> None:
        """A12."""
        fired = Fired()
        async with make_worker(fired):
            await queue.upsert_repeatable_job("tick", 1, repeat=every(100), limit=3, key="k")
            await eventually(lambda: fired.count("tick") == 2)
            await queue.upsert_repeatable_job("tick", 2, repeat=every(101), limit=3, key="k")
            await eventually(lambda: [job.data for job in fired.jobs] == [1, 1, 2, 2, 2])

    async def test_the_same_pattern_goes_on_counting(self, queue: Queue, make_worker: Callable[..., Worker]) -> None:
        fired = Fired()
        async with make_worker(fired):
            await queue.upsert_repeatable_job("tick", 1, repeat=every(100), limit=4)
            await eventually(lambda: fired.count("tick") == 2)
            await queue.upsert_repeatable_job("tick", 2, repeat=every(100), limit=4)
            await eventually(lambda: [job.data for job in fired.jobs] == [1, 1, 2, 2])
            await asyncio.sleep(0.3)
        assert len(fired.jobs) == 4

    async def test_a_removed_repeatable_fires_no_more(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        fired = Fired()
        async with make_worker(fired):
            job = await queue.upsert_repeatable_job("tick", repeat=every(30))
            await eventually(lambda: fired.count("tick") >= 2)
            assert await queue.remove_repeatable_by_key(job.id)
            await eventually(stream.is_settled)
            count = fired.count("tick")
            await asyncio.sleep(0.2)
        assert fired.count("tick") == count

    async def test_several_workers_fire_once(self, queue: Queue, make_worker: Callable[..., Worker]) -> None:
        fired = Fired()
        async with make_worker(fired), make_worker(fired), make_worker(fired):
            for number in range(20):
                await queue.upsert_repeatable_job(f"tick-{number}", repeat=every(40), limit=10)
            await eventually(lambda: len(fired.jobs) >= 200)
            await asyncio.sleep(0.1)
        assert set(Counter((job.name, job.scheduled_at_ms) for job in fired.jobs).values()) == {1}
        assert len(fired.jobs) == 200

    async def test_a_worker_that_may_not_schedule_fires_nothing(
        self, queue: Queue, make_worker: Callable[..., Worker]
    ) -> None:
        fired = Fired()
        await queue.upsert_repeatable_job("tick", repeat=every(20))
        async with make_worker(fired, run_scheduler=False):
            await asyncio.sleep(0.3)
        assert fired.jobs == []
        await queue.remove_repeatable_by_key("tick::every:20")

    async def test_1000_repeatables_due_at_once_fire_once_each(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats
    ) -> None:
        fired = Fired()
        start_ms = int(time.time() * 1000) + 1500
        for number in range(1000):
            spec = RepeatSpec(job_name="tick", pattern=every(HOUR_MS), payload=b"\x01", key=f"k-{number}", limit=1)
            await repeats.put(spec.key.encode(), encode_spec(spec), start_ms)
        async with make_worker(fired), make_worker(fired):
            await eventually(lambda: len(fired.jobs) == 1000, timeout=40)
        assert fired.windows("tick") == [start_ms] * 1000
        assert (await repeats.scores(), await repeats.hashes()) == ({}, 0)


class TestJobs:
    async def test_each_fire_is_a_job_with_its_own_retries(
        self, queue: Queue, make_worker: Callable[..., Worker]
    ) -> None:
        """The official engine drops attempts and backoff."""
        attempts: list[int] = []

        async def fail(job: Job) -> None:
            attempts.append(job.attempt)
            raise RuntimeError("fails")

        async with make_worker(fail, max_attempts=25):
            await queue.upsert_repeatable_job(
                "tick", repeat=every(20), limit=1, attempts=3, backoff=BackoffSpec.fixed(10, jitter_ms=0)
            )
            await eventually(queue.dlq.count)
        assert attempts == [0, 1, 2]
        await queue.dlq.purge()

    async def test_a_name_comes_through(self, queue: Queue, make_worker: Callable[..., Worker]) -> None:
        fired = Fired()
        async with make_worker(fired):
            for name in ("wörk", ""):
                await queue.upsert_repeatable_job(name, repeat=every(20), limit=1)
            await eventually(lambda: len(fired.jobs) == 2)
        assert {job.name for job in fired.jobs} == {"wörk", ""}

    async def test_a_job_that_was_added_has_no_scheduled_time(
        self, queue: Queue, make_worker: Callable[..., Worker]
    ) -> None:
        fired = Fired()
        async with make_worker(fired):
            await queue.add("added", job_id="one")
            await eventually(lambda: fired.jobs)
        assert fired.jobs[0].scheduled_at_ms is None

    async def test_the_scheduled_time_outlives_a_retry(self, queue: Queue, make_worker: Callable[..., Worker]) -> None:
        seen: list[int | None] = []

        async def fail_once(job: Job) -> None:
            seen.append(job.scheduled_at_ms)
            if job.attempt == 0:
                raise RuntimeError("again")

        async with make_worker(fail_once):
            await queue.upsert_repeatable_job("tick", repeat=every(20), limit=1, backoff=1)
            await eventually(lambda: len(seen) == 2)
        assert seen[0] == seen[1] is not None

    async def test_a_repeatable_can_be_fired_by_hand(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        job = await queue.upsert_repeatable_job("tick", {"n": 1}, repeat=every(HOUR_MS), limit=1, attempts=7)
        by_hand = await queue.fire_now(job.id)
        (entry,) = await stream.entries()
        assert (entry.job_id, entry.name, entry.data) == (by_hand.id, "tick", {"n": 1})
        assert entry.retry is not None
        assert entry.retry[0] == 7
        (meta,) = await queue.get_repeatable_jobs()
        assert meta.fired == 0
        with pytest.raises(InvalidArgument, match="there is no repeatable 'unknown'"):
            await queue.fire_now("unknown")


class TestPause:
    async def test_a_paused_repeatable_does_not_fire_until_it_is_resumed(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        fired = Fired()
        job = await queue.upsert_repeatable_job("tick", repeat=every(50))
        async with make_worker(fired):
            await eventually(lambda: fired.jobs)
            assert await queue.repeatables.pause(job.id)
            assert not await queue.repeatables.pause(job.id)
            await eventually(stream.is_settled)
            paused_at, count = time.time() * 1000, len(fired.jobs)
            (meta,) = await queue.get_repeatable_jobs()
            assert (meta.is_paused, meta.key) == (True, job.id)
            await asyncio.sleep(0.3)
            assert len(fired.jobs) == count
            assert await queue.repeatables.resume(job.id)
            assert not await queue.repeatables.resume(job.id)
            await eventually(lambda: len(fired.jobs) >= count + 2)
        resumed = fired.windows("tick")[count:]
        assert resumed[0] >= paused_at + 300  # nothing of the pause is made up for
        assert await queue.remove_repeatable_by_key(job.id)

    async def test_a_paused_one_can_be_removed_or_stored_with_other_times(self, queue: Queue, repeats: Repeats) -> None:
        job = await queue.upsert_repeatable_job("tick", repeat=every(HOUR_MS), key="k")
        assert await queue.repeatables.pause(job.id)
        await queue.upsert_repeatable_job("tick", repeat=every(HOUR_MS + 1), key="k")
        (meta,) = await queue.get_repeatable_jobs()
        assert not meta.is_paused
        assert await queue.repeatables.pause(job.id)
        assert await queue.remove_repeatable_by_key(job.id)
        assert await repeats.hashes() == 0

    @pytest.mark.parametrize("paused_for_ms", (0, 30 * 60_000, 150 * 60_000))
    async def test_an_interval_keeps_its_beat_over_a_pause(
        self, queue: Queue, repeats: Repeats, paused_for_ms: int
    ) -> None:
        job = await queue.upsert_repeatable_job("tick", repeat=every(HOUR_MS))
        next_ms = await repeats.backdate(job.id, paused_for_ms - 20 * 60_000)  # it had 20 minutes left
        await queue.repeatables.pause(job.id)
        assert await queue.repeatables.resume(job.id)
        (meta,) = await queue.get_repeatable_jobs()
        missed = 0 if paused_for_ms <= 20 * 60_000 else 1 + (paused_for_ms - 20 * 60_000) // HOUR_MS
        assert meta.next_fire_ms == next_ms + missed * HOUR_MS
        assert await queue.remove_repeatable_by_key(job.id)

    async def test_an_unknown_repeatable_cannot_be_paused(self, queue: Queue) -> None:
        assert not await queue.repeatables.pause("unknown")
        assert not await queue.repeatables.resume("unknown")


class TestMissed:
    """As if no scheduler had run for five minutes."""

    DOWN_MS = 300_000

    async def fires(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats, **options: Any
    ) -> tuple[list[int], int, float]:
        """The windows that are fired, the score that was due, and the one afterwards (0: it is gone)."""
        fired = Fired()
        options = {"repeat": every(60_000)} | options
        job = await queue.upsert_repeatable_job("tick", **options)
        due_ms = await repeats.backdate(job.id, self.DOWN_MS)
        async with make_worker(fired):
            await eventually(lambda: self.has_moved(repeats, job.id, due_ms))
            await queue.add("last")
            await eventually(lambda: fired.count("last"))
        left = await repeats.scores()
        await repeats.clear()
        return fired.windows("tick"), due_ms, left.get(job.id, 0)

    left: dict[str, float]

    async def has_moved(self, repeats: Repeats, key: str, due_ms: int) -> bool:
        """Past all that was missed: what is large is fired by several calls."""
        self.left = await repeats.scores()
        return self.left.get(key, inf) > due_ms + self.DOWN_MS

    async def test_skip_fires_none(self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats) -> None:
        windows, due_ms, score = await self.fires(queue, make_worker, repeats)
        assert windows == []
        assert score > time.time() * 1000 - 5000
        assert (score - due_ms) % 60_000 == 0

    async def test_fire_once_fires_one(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats
    ) -> None:
        windows, due_ms, score = await self.fires(
            queue, make_worker, repeats, missed_fires=MissedFiresPolicy.fire_once()
        )
        assert windows == [due_ms]
        assert score > due_ms + self.DOWN_MS

    @pytest.mark.parametrize(("cap", "expected"), ((3, 3), (100, 6)))
    async def test_fire_all_fires_as_many_as_allowed(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats, cap: int, expected: int
    ) -> None:
        windows, due_ms, score = await self.fires(
            queue, make_worker, repeats, missed_fires=MissedFiresPolicy.fire_all(cap)
        )
        assert windows == [due_ms + n * 60_000 for n in range(expected)]
        assert score == due_ms + 360_000

    async def test_fire_all_keeps_its_cap_also_if_the_jobs_are_large(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats
    ) -> None:
        """They are more than travel in one call."""
        windows, due_ms, score = await self.fires(
            queue,
            make_worker,
            repeats,
            repeat=every(20_000),  # far longer than a busy machine needs until the next one is due
            data=b"x" * 900_000,
            missed_fires=MissedFiresPolicy.fire_all(11),
        )
        assert windows == [due_ms + n * 20_000 for n in range(11)]
        assert score > due_ms + self.DOWN_MS

    async def test_the_limit_holds_for_them(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats
    ) -> None:
        windows, due_ms, score = await self.fires(
            queue, make_worker, repeats, limit=2, missed_fires=MissedFiresPolicy.fire_all(100)
        )
        assert (windows, score) == ([due_ms, due_ms + 60_000], 0)

    async def test_the_end_holds_for_them(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats, witness: Any
    ) -> None:
        """A12: the official engine fires past it."""
        spec = RepeatSpec(
            job_name="tick",
            pattern=every(60_000),
            payload=b"\x01",
            end_before_ms=int(time.time() * 1000) - 100_000,
            missed_fires=MissedFiresPolicy.fire_all(100),
        )
        due_ms = int(time.time() * 1000) - self.DOWN_MS
        await repeats.put(spec.key.encode(), encode_spec(spec), due_ms)
        fired = Fired()
        async with make_worker(fired):
            await eventually(lambda: self.has_moved(repeats, spec.key, due_ms))
            await eventually(lambda: len(fired.jobs) >= 4)
        assert fired.windows("tick") == [due_ms + n * 60_000 for n in range(4)]
        assert (self.left, await repeats.hashes()) == ({}, 0)

    async def test_a_wall_clock_is_caught_up_with(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats
    ) -> None:
        windows, due_ms, _ = await self.fires(
            queue,
            make_worker,
            repeats,
            repeat=cron("* * * * *", "America/New_York"),
            missed_fires=MissedFiresPolicy.fire_all(100),
        )
        assert windows == [due_ms, *next_fires(cron("* * * * *"), len(windows) - 1, due_ms)]
        assert 5 <= len(windows) <= 7

    async def test_a_repeatable_in_time_fires_under_every_policy(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats
    ) -> None:
        self.DOWN_MS = 50
        windows, due_ms, score = await self.fires(queue, make_worker, repeats)
        assert (windows, score) == ([due_ms], due_ms + 60_000)


GOOD = RepeatSpec(job_name="good", pattern=every(HOUR_MS), payload=b"\x01", key="k")
DECODED = encode_spec(GOOD)


class TestPoison:
    async def test_a_schedule_with_a_zone_waits_for_a_zone_database(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The only worker has none; then tzdata is installed."""
        fired = Fired()
        job = await queue.upsert_repeatable_job("report", repeat=cron("0 9 * * *", "Europe/Berlin"))
        due_ms = await repeats.backdate(job.id, 1000)
        with ExitStack() as on_this_machine:
            on_this_machine.enter_context(without_zone_database())
            async with make_worker(fired):
                await eventually(lambda: "install tzdata" in caplog.text)
                await queue.upsert_repeatable_job("tick", repeat=every(10), limit=3)
                await eventually(lambda: fired.count("tick") == 3)
                assert (fired.count("report"), await repeats.scores()) == (0, {job.id: due_ms})
                on_this_machine.close()
                await eventually(lambda: fired.windows("report") == [due_ms])
        assert (await queue.counts()).dead == 0

    @pytest.mark.parametrize(
        ("spec", "fields"),
        (
            (b"", {}),
            (b"\xc1" * 20, {}),
            (DECODED[:-3], {}),
            (b"\x90", {}),
            (DECODED.replace(b"Every", b"Never"), {}),
            (DECODED.replace(b"\xc4\x03\xc4\x01\x01", b"\xc4\x02\xa1x"), {}),  # A11: data that is no bytes
            (DECODED, {"retry": sha1(DECODED).hexdigest().encode() + b"\xff\xff"}),
            (DECODED, {"fired": b"abc"}),
            (DECODED, {"fired": b"-1"}),
            (DECODED, {"fired": b"9" * 19}),
            (DECODED, {"fired": b"9" * 5000}),
            (b"x" * 3_000_000, {}),
        ),
    )
    async def test_a_repeatable_that_cannot_be_fired_is_buried_with_its_bytes(
        self,
        queue: Queue,
        make_worker: Callable[..., Worker],
        repeats: Repeats,
        caplog: Any,
        spec: bytes,
        fields: dict[str, Any],
    ) -> None:
        fired = Fired()
        await repeats.put(b"bad", spec, **fields)
        await queue.upsert_repeatable_job("good", repeat=every(50), limit=3)
        async with make_worker(fired):
            await eventually(lambda: fired.count("good") == 3)
            await eventually(queue.dlq.count)
        (dead,) = await queue.dlq.page()
        assert (dead.reason, dead.payload) == ("malformed", spec)
        assert "repeatable 'bad'" in str(dead.detail)
        assert (await repeats.scores(), await repeats.hashes()) == ({}, 0)
        assert "a repeatable cannot be fired" in caplog.text
        await queue.dlq.purge()

    async def test_a_repeatable_that_is_mended_before_it_is_buried_stays_and_fires(
        self,
        queue: Queue,
        make_worker: Callable[..., Worker],
        repeats: Repeats,
        monkeypatch: pytest.MonkeyPatch,
        caplog: Any,
    ) -> None:
        fired, bury = Fired(), RepeatablesBroker.try_to_bury_repeatable

        async def mend_and_bury(broker: RepeatablesBroker, *arguments: Any) -> str | None:
            await repeats.put(b"k", DECODED, int(time.time() * 1000))
            return await bury(broker, *arguments)

        monkeypatch.setattr(RepeatablesBroker, "try_to_bury_repeatable", mend_and_bury)
        await repeats.put(b"k", b"\xc1")
        async with make_worker(fired) as worker:
            await eventually(lambda: fired.count("good") == 1)
            assert worker._components is not None
            assert worker._components.scheduler.buried_count == 0
        assert await queue.dlq.count() == 0
        assert "in the dead letters now" not in caplog.text

    async def test_a_key_that_holds_something_else_is_set_aside(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats, witness: Any
    ) -> None:
        fired = Fired()
        await repeats.put(b"bad", None)
        await witness.set(f"{repeats.prefix}:spec:bad", "a string")
        await repeats.put(b"bare", None)
        await queue.upsert_repeatable_job("good", repeat=every(50), limit=3)
        assert [meta.job_name for meta in await queue.get_repeatable_jobs()] == ["good"]
        async with make_worker(fired):
            await eventually(lambda: fired.count("good") == 3)
            await eventually(queue.dlq.count)
        assert (await repeats.scores(), await repeats.hashes()) == ({}, 0)
        await queue.dlq.purge()

    async def test_a_count_that_is_written_otherwise_fires_once_a_window(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats
    ) -> None:
        fired = Fired()
        await repeats.put(b"k", DECODED, int(time.time() * 1000), fired="007")
        async with make_worker(fired):
            await eventually(lambda: fired.jobs)
            await asyncio.sleep(0.5)
        assert fired.count("good") == 1
        (meta,) = await queue.get_repeatable_jobs()
        assert meta.fired == 8

    @pytest.mark.parametrize("zone", ("Asia/Tokyo", "Pacific/Kiritimati", "Europe/Berlin", "+14:00"))
    async def test_a_cron_that_starts_in_the_year_9999_ends_no_worker(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats, zone: str
    ) -> None:
        fired = Fired()
        spec = RepeatSpec(
            job_name="far", pattern=cron("0 0 1 1 *", zone), payload=b"\x01", key="far", start_after_ms=LAST_MS - 10
        )
        await repeats.put(b"far", encode_spec(spec), 1)
        await queue.upsert_repeatable_job("good", repeat=every(50), limit=3)
        async with make_worker(fired) as worker:
            await eventually(lambda: fired.count("good") == 3)
            assert worker.is_running
        assert (await repeats.scores(), fired.count("far")) == ({}, 0)

    async def test_dead_letters_that_take_none_hold_up_no_other(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats, witness: Any, caplog: Any
    ) -> None:
        fired, dead = Fired(), f"{{chasqui:{queue.name}}}:dlq"
        await witness.xadd(dead, {"x": "x"}, id=f"{2**64 - 1}-{2**64 - 1}")
        for number in range(3):
            await repeats.put(b"bad-%d" % number, b"\xc1")
        await queue.upsert_repeatable_job("good", repeat=every(50), limit=3)
        async with make_worker(fired):
            await eventually(lambda: fired.count("good") == 3)
        assert set(await repeats.scores()) == {"bad-0", "bad-1", "bad-2"}
        assert await repeats.hashes() == 3
        assert "nor be a dead letter" in caplog.text
        await witness.delete(dead)

    @pytest.mark.parametrize("score", (float("-inf"), -5.0, 0.5))
    async def test_a_time_that_is_none_is_long_past(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats, score: float
    ) -> None:
        fired = Fired()
        await repeats.put(b"k", DECODED, score)
        assert [meta.key for meta in await queue.get_repeatable_jobs()] == ["k"]
        await queue.upsert_repeatable_job("tick", repeat=every(50), limit=3)
        async with make_worker(fired):
            await eventually(lambda: fired.count("tick") == 3)
        assert (await repeats.scores())["k"] > time.time() * 1000

    async def test_a_time_that_never_comes_is_listed_all_the_same(self, queue: Queue, repeats: Repeats) -> None:
        await repeats.put(b"k", DECODED, float("inf"))
        assert [meta.key for meta in await queue.get_repeatable_jobs()] == ["k"]

    async def test_a_key_that_is_no_text_is_fired_and_removed(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats
    ) -> None:
        fired = Fired()
        await repeats.put(b"\xff\xfe", DECODED, int(time.time() * 1000))
        async with make_worker(fired):
            await eventually(lambda: fired.count("good") == 1)
        (meta,) = await queue.get_repeatable_jobs()
        assert await queue.remove_repeatable_by_key(meta.key)
        assert await repeats.hashes() == 0

    async def test_a_bad_delayed_member_and_a_bad_spec_do_not_stop_1000_good_jobs(
        self, queue: Queue, make_worker: Callable[..., Worker], repeats: Repeats, witness: Any
    ) -> None:
        """1,000 jobs run, and 2 letters are reported."""
        fired = Fired()
        await queue.add_bulk({"name": "delayed", "data": n, "delay_ms": 50} for n in range(500))
        due_ms = int(time.time() * 1000)
        for number in range(500):
            spec = RepeatSpec(job_name="fired", pattern=every(HOUR_MS), payload=b"\x01", key=f"k{number}", limit=1)
            await repeats.put(spec.key.encode(), encode_spec(spec), due_ms)
        await repeats.put(b"bad", b"bad", due_ms)
        await witness.zadd(f"{{chasqui:{queue.name}}}:delayed", {b"bad": due_ms})
        async with make_worker(fired):
            await eventually(lambda: len(fired.jobs) >= 1000, timeout=40)

            async def two_are_dead() -> bool:
                return await queue.dlq.count() == 2

            await eventually(two_are_dead)
        assert (fired.count("delayed"), fired.count("fired")) == (500, 500)
        assert [dead.payload for dead in await queue.dlq.page()] == [b"bad", b"bad"]
        await queue.dlq.purge()
