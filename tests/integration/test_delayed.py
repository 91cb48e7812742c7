"""Delayed jobs: when they run, which process promotes them, and bad members among them.

not early, and soon             TestTimes.test_a_delayed_job_is_not_early_and_not_late
zero and past run at once       TestTimes.test_a_job_that_is_already_due_goes_straight_to_the_stream
by the server's clock           TestTimes.test_a_producer_with_a_wrong_clock_changes_nothing
bounds                          TestTimes.test_a_delay_past_the_cap_is_refused
bulk, mixed, empty, broken      TestBulk
restart of the worker           TestPromotion.test_delayed_jobs_outlive_the_worker
a promoter of its own           tests/integration/test_standalone.py
SCRIPT FLUSH                    TestPromotion.test_lost_scripts_change_nothing
names                           TestNames
bad members                     TestPoison
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

from pychasqui import InvalidArgument, Job, Queue, RetryPolicy, UnsupportedData, Worker
from tests.support.delayed import Delayed
from tests.support.handlers import RecordingHandler
from tests.support.proxy import Proxy
from tests.support.streams import Stream
from tests.support.waiting import eventually

LATER_MS = 60_000


class TestTimes:
    @pytest.mark.parametrize(("protocol", "late_ms"), ((2, 1500), (3, 400)))
    async def test_a_delayed_job_is_not_early_and_not_late(
        self, redis_url: str, queue_name: str, delayed: Delayed, stream: Stream, protocol: int, late_ms: int
    ) -> None:
        """Under RESP2 a promoter cannot listen beside its other calls, and looks once a second."""
        runs = RecordingHandler()
        url = f"{redis_url}?protocol={protocol}"
        async with Queue(queue_name, redis_url=url) as queue, Worker(queue_name, runs, redis_url=url):
            added_ms = {}
            for delay_ms in (300, 1, 40, 150):
                added_ms[delay_ms] = time.time() * 1000
                await queue.add("later", delay_ms, delay_ms=delay_ms)
            await eventually(lambda: len(runs.jobs) == 4)
        late = {delay_ms: runs.at_ms[delay_ms] - added_ms[delay_ms] - delay_ms for delay_ms in added_ms}
        assert all(0 <= ms < late_ms for ms in late.values()), late

    async def test_delays_are_given_in_every_way(self, queue: Queue, delayed: Delayed, stream: Stream) -> None:
        now_ms = time.time() * 1000
        at = datetime.fromtimestamp(now_ms / 1000 + 60, UTC)
        await queue.add("a", delay_ms=60_000)
        await queue.add("b", delay_ms=60_000.9)
        await queue.add("c", delay=timedelta(minutes=1))
        await queue.add("d", delay_ms=at)
        await queue.add("e", delay_ms=at.replace(tzinfo=None))  # a naive one is UTC
        await queue.add("f", delay_ms=at.astimezone(timezone(timedelta(hours=-7))))
        scores = await delayed.scores()
        assert len(scores) == 6
        assert all(-2 <= score - now_ms - 60_000 < 1000 for score in scores), scores
        assert await stream.length() == 0

    @pytest.mark.parametrize(
        "when",
        (
            {"delay_ms": 0},
            {"delay_ms": 0.4},
            {"delay": timedelta(0)},
            {"delay_ms": datetime(1, 1, 1)},  # noqa: DTZ001
            {"delay_ms": datetime(2020, 5, 17, tzinfo=UTC)},
            {"delay_ms": None, "delay": None},
        ),
    )
    async def test_a_job_that_is_already_due_goes_straight_to_the_stream(
        self, queue: Queue, delayed: Delayed, stream: Stream, when: dict[str, Any]
    ) -> None:
        job = await queue.add("now", **when)
        await queue.add_bulk([{"name": "now", **when}])
        assert (await stream.ids())[0] == job.id
        assert (await stream.length(), await delayed.count()) == (2, 0)

    async def test_a_producer_with_a_wrong_clock_changes_nothing(
        self, queue: Queue, delayed: Delayed, witness: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        true_ns = time.time_ns
        for skew_s in (-3600, 3600):
            monkeypatch.setattr(time, "time_ns", lambda skew_s=skew_s: true_ns() + skew_s * 10**9)
            await queue.add("later", delay_ms=LATER_MS)
        monkeypatch.undo()
        seconds, micros = await witness.time()
        now_ms = seconds * 1000 + micros / 1000
        assert all(-1 <= now_ms + LATER_MS - score < 1000 for score in await delayed.scores())

    async def test_a_worker_with_a_wrong_clock_changes_nothing_for_its_retries(
        self, queue: Queue, make_worker: Callable[..., Worker], delayed: Delayed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fail(job: Job) -> None:
            raise RuntimeError("fails")

        now_ms, true_ns, true_time = time.time() * 1000, time.time_ns, time.time
        monkeypatch.setattr(time, "time_ns", lambda: true_ns() - 3600 * 10**9)
        monkeypatch.setattr(time, "time", lambda: true_time() - 3600)
        async with make_worker(fail, retry=RetryPolicy(initial_ms=LATER_MS, max_ms=LATER_MS, jitter_ms=0)):
            await queue.add("fails")
            await eventually(delayed.count)
        (score,) = await delayed.scores()
        assert 0 <= score - now_ms - LATER_MS < 2000

    async def test_a_delay_past_the_cap_is_refused(self, redis_url: str, queue_name: str, delayed: Delayed) -> None:
        month_s = 30 * 24 * 3600
        async with Queue(queue_name, redis_url=redis_url) as queue:
            await queue.add("later", delay_ms=month_s * 1000)
            for too_long in (month_s * 1000 + 1, month_s * 1000.0 + 1, datetime.now(UTC) + timedelta(days=31)):
                with pytest.raises(InvalidArgument, match="max_delay_secs=2592000"):
                    await queue.add("later", delay_ms=too_long)
            with pytest.raises(InvalidArgument, match=r"job 1 of the bulk.*max_delay_secs=2592000"):
                await queue.add_bulk([{"name": "later"}, {"name": "later", "delay": timedelta(days=31)}])
        async with Queue(queue_name, redis_url=redis_url, max_delay_secs=5) as queue:
            job = await queue.add("later", delay_ms=5000)
            with pytest.raises(InvalidArgument, match="5001 ms is longer than max_delay_secs=5 allows"):
                await queue.add("later", delay_ms=5001)
            with pytest.raises(InvalidArgument, match="5001 ms is longer than max_delay_secs=5 allows"):
                await queue.reschedule(job.id, 5001)
        async with Queue(queue_name, redis_url=redis_url, max_delay_secs=0) as queue:
            await queue.add("later", delay=timedelta(days=99 * 365))
            await queue.add("later", delay_ms=datetime.max.replace(tzinfo=UTC))
            with pytest.raises(InvalidArgument, match="at most 3153600000000, 100 years"):
                await queue.add("later", delay_ms=2**63)
        assert await delayed.count() == 4

    async def test_a_job_that_is_due_sooner_than_the_one_awaited_is_not_late(
        self, queue: Queue, make_worker: Callable[..., Worker], delayed: Delayed
    ) -> None:
        """The promoter sleeps until the next job is due, and a message announces an earlier one."""
        runs = RecordingHandler()
        async with make_worker(runs):
            await queue.add("far", "far", delay_ms=LATER_MS)
            await asyncio.sleep(0.7)  # so that it knows of that one and sleeps
            took_ms = []
            for number in range(10):
                before = time.time() * 1000
                await queue.add("near", number, delay_ms=30)
                await eventually(partial(runs.has_run, number), every=0.001)
                took_ms.append(runs.at_ms[number] - before)
        assert min(took_ms) >= 30
        assert sorted(took_ms)[7] < 300, took_ms  # a busy machine may be late now and then


class TestBulk:
    async def test_1000_delayed_jobs_all_run(
        self, queue: Queue, make_worker: Callable[..., Worker], delayed: Delayed, stream: Stream
    ) -> None:
        runs = RecordingHandler()
        jobs = await queue.add_bulk({"name": "later", "data": n, "delay_ms": 100 + n % 7} for n in range(1000))
        assert await delayed.count() == 1000
        async with make_worker(runs):
            await eventually(lambda: len(runs.jobs) == 1000)
        assert sorted(runs.data) == list(range(1000))
        assert {job.id for job in runs.jobs} == {job.id for job in jobs}
        assert await delayed.count() == 0
        assert await stream.is_settled()

    async def test_delayed_and_immediate_jobs_travel_together(
        self, redis_url: str, queue_name: str, delayed: Delayed, stream: Stream
    ) -> None:
        async with Proxy(redis_url) as proxy, Queue(queue_name, redis_url=proxy.url) as queue:
            await queue.add("first")
            before = len(proxy.requests)
            jobs = await queue.add_bulk(
                {"name": "mixed", "data": n, **({"delay_ms": LATER_MS} if n % 2 else {})} for n in range(100)
            )
            assert len(proxy.requests) - before == 1
        assert await stream.ids() == [*(await stream.ids())[:1], *(job.id for job in jobs[::2])]
        assert await delayed.count() == 50

    async def test_an_empty_one_touches_nothing(self, queue: Queue, witness: Any) -> None:
        assert await queue.add_bulk([]) == []
        assert await witness.dbsize() == 0

    async def test_a_job_that_cannot_be_encoded_stops_the_whole_bulk(self, queue: Queue, witness: Any) -> None:
        with pytest.raises(UnsupportedData, match="job 1 of the bulk"):
            await queue.add_bulk([{"name": "a", "delay_ms": 5}, {"name": "b", "data": {1}, "delay_ms": 5}])
        assert await witness.dbsize() == 0

    async def test_the_bound_of_the_queue_counts_only_what_is_due(
        self, redis_url: str, queue_name: str, delayed: Delayed, stream: Stream
    ) -> None:
        async with Queue(queue_name, redis_url=redis_url, max_stream_len=2) as queue:
            await queue.add_bulk({"name": "later", "delay_ms": LATER_MS} for _ in range(10))
            await queue.add_bulk([{"name": "now"}, {"name": "later", "delay_ms": LATER_MS}, {"name": "now"}])
        assert (await stream.length(), await delayed.count()) == (2, 11)


class TestPromotion:
    async def test_delayed_jobs_outlive_the_worker(
        self, queue: Queue, make_worker: Callable[..., Worker], delayed: Delayed
    ) -> None:
        first, second = RecordingHandler(), RecordingHandler()
        async with make_worker(first):
            await queue.add("later", 1, delay_ms=1500)
        assert (first.data, await delayed.count()) == ([], 1)
        async with make_worker(second):
            await eventually(lambda: second.data == [1])
        assert await delayed.count() == 0

    async def test_a_worker_that_may_not_promote_leaves_them(
        self, queue: Queue, make_worker: Callable[..., Worker], delayed: Delayed
    ) -> None:
        runs = RecordingHandler()
        await queue.add("later", 1, delay_ms=1)
        async with make_worker(runs, delayed_enabled=False):
            await queue.add("now", 2)
            await eventually(lambda: runs.data == [2])
            await asyncio.sleep(0.3)  # long enough for the promoter that should not be there
            assert await delayed.count() == 1
        async with make_worker(runs):
            await eventually(lambda: runs.data == [2, 1])

    async def test_lost_scripts_change_nothing(
        self, queue: Queue, make_worker: Callable[..., Worker], witness: Any, delayed: Delayed
    ) -> None:
        runs = RecordingHandler()
        async with make_worker(runs):
            for number in range(5):
                await witness.script_flush()
                await queue.add("later", number, delay_ms=20, job_id=f"id-{number}")
                await witness.script_flush()
                await eventually(partial(runs.has_run, number))
        assert runs.data == list(range(5))

    async def test_the_indexes_go_when_the_job_does(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, delayed: Delayed
    ) -> None:
        runs = RecordingHandler()
        await queue.add("later", 1, delay_ms=20, job_id="named")
        await queue.add("later", 2, delay_ms=20)
        assert len([key for key in await stream.keys() if key.startswith("didx:")]) == 2
        async with make_worker(runs):
            await eventually(lambda: sorted(runs.data) == [1, 2])
            await eventually(stream.is_settled)
            left = [key for key in await stream.keys() if key.startswith(("didx:", "unique:", "dlid:"))]
        assert left == []

    async def test_a_job_that_waits_for_its_next_try_is_promoted_by_the_worker_that_failed(
        self, queue: Queue, make_worker: Callable[..., Worker]
    ) -> None:
        attempts: list[int] = []

        async def fail_twice(job: Job) -> None:
            attempts.append(job.attempt)
            if job.attempt < 2:
                raise RuntimeError("fails")

        async with make_worker(fail_twice, retry=RetryPolicy(initial_ms=20, jitter_ms=0)):
            await queue.add("later", delay_ms=30, job_id="named")
            await eventually(lambda: attempts == [0, 1, 2])


class TestNames:
    @pytest.mark.parametrize("name", ("plain", "", "wörk ☃", "n" * 256))
    async def test_a_name_comes_through(
        self, queue: Queue, make_worker: Callable[..., Worker], delayed: Delayed, name: str
    ) -> None:
        """In, at and after a retry; cancelling does not care."""
        names: list[str] = []

        async def handle(job: Job) -> None:
            names.append(job.name)
            if job.attempt == 0:
                raise RuntimeError("once more")

        await queue.add(name, delay_ms=20, backoff=1)
        await queue.add(name, delay_ms=datetime.now(UTC) + timedelta(milliseconds=50), backoff=1)
        cancelled = await queue.add(name, delay_ms=20)
        assert await queue.cancel_delayed(cancelled.id)
        async with make_worker(handle):
            await eventually(lambda: len(names) == 4)
        assert set(names) == {name}

    async def test_a_member_without_a_name_has_none(
        self, queue: Queue, make_worker: Callable[..., Worker], delayed: Delayed
    ) -> None:
        runs = RecordingHandler()
        await delayed.put(bytes.fromhex("00000000 94 a5 646c792d32 c40101 cf000001a1dd76c5fe 00"))
        async with make_worker(runs):
            await eventually(lambda: runs.jobs)
        assert [(job.id, job.name) for job in runs.jobs] == [("dly-2", "")]


class TestPoison:
    POISON = (b"", b"ab", b"\xff\xff\xff\xffname", b"\x05\0\0\0name", b"\0\0\0\0", b"\0\0\0\0\xc1", b"\0\0\0\0junk")

    async def test_bad_members_do_not_keep_good_jobs_from_running(
        self, queue: Queue, make_worker: Callable[..., Worker], delayed: Delayed, caplog: Any
    ) -> None:
        """The bytes of each bad member are in the dead letters, as a malformed member or an unreadable job."""
        runs = RecordingHandler()
        await queue.add_bulk({"name": "good", "data": n, "delay_ms": 50} for n in range(1000))
        for score, member in enumerate(self.POISON):
            await delayed.put(member, score)
        async with make_worker(runs):
            await eventually(lambda: len(runs.jobs) == 1000, timeout=40)
            await eventually(self.all_dead(queue))
        assert sorted(runs.data) == list(range(1000))
        assert any("delayed members were no jobs" in record.message for record in caplog.records)
        payloads = {dead.payload for dead in await queue.dlq.page(limit=100)}
        assert payloads >= {b"ab", b"\xff\xff\xff\xffname", b"\x05\0\0\0name", b"\xc1", b"junk"}
        await queue.dlq.purge()

    def all_dead(self, queue: Queue) -> Callable[[], Any]:
        async def check() -> bool:
            return await queue.dlq.count() == len(self.POISON)

        return check

    @pytest.mark.parametrize("score", (float("-inf"), -5.0, 0.5))
    async def test_a_time_that_is_none_is_due(
        self, queue: Queue, make_worker: Callable[..., Worker], delayed: Delayed, witness: Any, score: float
    ) -> None:
        runs = RecordingHandler()
        await queue.add("later", 1, delay_ms=LATER_MS)
        for member in await witness.zrange(delayed.key, 0, -1):
            await delayed.put(member, score)
        async with make_worker(runs):
            await eventually(lambda: runs.data == [1])
