"""The inspector: counts, pages, single jobs, workers, and removal of jobs by state."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from time import monotonic, time
from typing import Any, Literal

import msgpack  # type: ignore[import-untyped]
import pytest
import redis.asyncio

from pychasqui import InvalidArgument, InvalidType, Job, JobView, Queue, RepeatPattern, Worker
from pychasqui._redis.broker import Broker
from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.member import make_delayed_member
from pychasqui._wire.msgpack import encode_data
from tests.support.gate import Gate
from tests.support.proxy import Proxy
from tests.support.streams import Stream
from tests.support.waiting import eventually, first_below


@pytest.fixture
async def queue(queue: Queue) -> AsyncIterator[Queue]:
    yield queue
    await queue.obliterate()


@pytest.fixture
def stream(witness: redis.asyncio.Redis, queue_name: str) -> Stream:
    return Stream(witness, queue_name)


async def fails(job: Job) -> None:
    raise ValueError("no such user")


async def pages(queue: Queue, state: Any, limit: int) -> list[JobView]:
    """All jobs of a state, page by page."""
    jobs: list[JobView] = []
    after: str | None = ""
    while after is not None:
        page = await queue.jobs(state, after=after, limit=limit)
        assert len(page.jobs) <= limit
        jobs += page.jobs
        after = page.next
    return jobs


async def counted(queue: Queue, **wanted: int) -> bool:
    counts = (await queue.counts())._asdict()
    return all(counts[state] == count for state, count in wanted.items())


class TestCounts:
    async def test_a_queue_that_was_never_used_is_empty(self, queue: Queue) -> None:
        assert await queue.counts() == (0, 0, 0, 0, 0)
        assert await queue.workers() == []
        assert await queue.oldest_age_ms() is None
        assert not await queue.is_paused()
        for state in ("waiting", "active", "delayed", "dead"):
            assert (await queue.jobs(state)).jobs == []

    async def test_every_state_is_counted(self, queue: Queue, redis_url: str, queue_name: str) -> None:
        async with Worker(queue_name, fails, redis_url=redis_url, max_attempts=1):
            await queue.add_bulk({"name": "fail"} for _ in range(4))
            await eventually(lambda: counted(queue, dead=4))
        gate = Gate()
        async with Worker(queue_name, gate, redis_url=redis_url, concurrency=2):
            await queue.add_bulk({"name": "hold"} for _ in range(2))
            await eventually(lambda: gate.running == 2)
            await queue.add_bulk({"name": "wait"} for _ in range(5))
            await queue.add_bulk({"name": "later", "delay_ms": 60_000} for _ in range(3))
            kept = await queue.repeatables.upsert("beat", repeat=RepeatPattern.every(60_000))
            await queue.repeatables.upsert("nightly", repeat=RepeatPattern.cron("@daily"))
            await queue.repeatables.pause(kept.key)
            counts = await queue.counts()
            assert (counts.waiting + counts.active, counts.active >= 2) == (7, True)
            assert (counts.delayed, counts.dead, counts.repeatables) == (3, 4, 2)
            gate.opened.set()
            await eventually(lambda: counted(queue, waiting=0, active=0))

    async def test_a_group_that_is_gone_is_no_error(self, queue: Queue, witness: redis.asyncio.Redis) -> None:
        await queue.add("wait")
        assert await queue.counts() == (1, 0, 0, 0, 0)
        assert (await queue.jobs("active")).jobs == []
        assert [job.name for job in (await queue.jobs("waiting")).jobs] == ["wait"]


class TestPages:
    @pytest.mark.parametrize("limit", (1, 7, 100, 1000))
    async def test_pages_of_waiting_jobs_show_each_once_in_order(self, queue: Queue, limit: int) -> None:
        jobs = await queue.add_bulk({"name": f"n{number}", "data": {"n": number}} for number in range(25))
        found = await pages(queue, "waiting", limit)
        assert [(job.id, job.name, job.data) for job in found] == [(job.id, job.name, job.data) for job in jobs]
        assert {(job.state, job.attempt, job.error) for job in found} == {("waiting", 0, None)}
        assert all(abs(job.created_at_ms - time() * 1000) < 60_000 and job.entry_id for job in found)

    async def test_pages_of_waiting_jobs_leave_out_jobs_that_workers_have(
        self, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        gate = Gate()
        async with Worker(queue_name, gate, redis_url=redis_url, concurrency=3) as worker:
            await queue.add_bulk({"name": "hold", "data": number} for number in range(3))
            await eventually(lambda: gate.running == 3)
            await queue.add_bulk({"name": "wait", "data": number} for number in range(3, 30))
            active, waiting = await pages(queue, "active", 2), await pages(queue, "waiting", 5)
            assert sorted(job.data for job in active + waiting) == list(range(30))
            assert {job.worker for job in active} == {worker.consumer_id}
            assert all(job.state == "active" and job.deliveries == 1 and job.idle_ms is not None for job in active)
            gate.opened.set()
            await eventually(lambda: counted(queue, waiting=0, active=0))

    @pytest.mark.parametrize("limit", (1, 7, 100))
    async def test_pages_of_delayed_jobs_show_each_once_soonest_first(self, queue: Queue, limit: int) -> None:
        """Many jobs are due at the same time."""
        before = time() * 1000
        await queue.add_bulk({"name": "n", "data": n, "delay_ms": 60_000 + 1000 * (n // 10)} for n in range(25))
        found = await pages(queue, "delayed", limit)
        assert sorted(job.data for job in found) == list(range(25))
        assert [job.due_ms for job in found] == sorted(job.due_ms or 0 for job in found)
        assert all(before + 59_000 < (job.due_ms or 0) < before + 70_000 for job in found)
        assert {job.state for job in found} == {"delayed"}

    async def test_pages_of_delayed_jobs_skip_none_when_others_leave_meanwhile(self, queue: Queue) -> None:
        jobs = await queue.add_bulk({"name": "n", "data": n, "delay_ms": 60_000 + 10 * n} for n in range(20))
        first = await queue.jobs("delayed", limit=5)
        assert await queue.cancel_delayed_bulk(job.id for job in jobs[:4]) == [True] * 4
        rest = await queue.jobs("delayed", after=first.next or "", limit=100)
        assert [job.data for job in first.jobs + rest.jobs] == list(range(20))

    @pytest.mark.parametrize("limit", (1, 7, 100))
    async def test_pages_of_dead_jobs_show_each_once_with_its_reason(
        self, queue: Queue, redis_url: str, queue_name: str, limit: int
    ) -> None:
        async with Worker(queue_name, fails, redis_url=redis_url, max_attempts=1):
            jobs = await queue.add_bulk({"name": "fail", "data": number} for number in range(15))
            await eventually(lambda: counted(queue, dead=15))
        found = await pages(queue, "dead", limit)
        assert sorted(job.id or "" for job in found) == sorted(job.id for job in jobs)
        assert {(job.state, job.reason) for job in found} == {("dead", "retries_exhausted")}

    async def test_pages_show_unreadable_entries_too(
        self, queue: Queue, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        prefix = f"{{chasqui:{queue_name}}}"
        await witness.xadd(f"{prefix}:stream", {"d": b"\xc1", "n": "bad"})
        await witness.xadd(f"{prefix}:stream", {"x": b"1"})
        await witness.xadd(f"{prefix}:stream", {"d": msgpack.packb(["j", b"\xc1", 5, 2])})
        await witness.zadd(f"{prefix}:delayed", {b"\x01": 5})
        await witness.zadd(f"{prefix}:delayed", {b"\xff\xff\xff\xffxy": -7})
        bad, empty, half = (await queue.jobs("waiting")).jobs
        assert (bad.id, bad.name, bool(bad.error)) == (None, "bad", True)
        assert (empty.id, bool(empty.error)) == (None, True)
        assert (half.id, half.data, half.attempt, bool(half.error)) == ("j", None, 2, True)
        assert [(job.id, bool(job.error)) for job in await pages(queue, "delayed", 1)] == [(None, True)] * 2

    async def test_pages_of_active_jobs_are_complete_also_with_gaps_in_the_stream(
        self, queue: Queue, witness: redis.asyncio.Redis, queue_name: str
    ) -> None:
        stream = f"{{chasqui:{queue_name}}}:stream"
        jobs = await queue.add_bulk({"name": "n", "data": number} for number in range(5))
        await witness.xgroup_create(stream, "default", "0")
        ((_, entries),) = await witness.xreadgroup("default", "somebody", {stream: ">"})
        await witness.xack(stream, "default", entries[1][0], entries[2][0])  # by a client that does not delete
        await witness.xdel(stream, entries[3][0])
        page = await queue.jobs("active")
        assert [(job.id, job.data) for job in page.jobs] == [(jobs[0].id, 0), (None, None), (jobs[4].id, 4)]


class TestALongQueue:
    """With a million waiting each of these takes 0.1 to 6 ms here. What a look costs does not depend on how many wait,
    so that a smaller number shows as well whether one begins to."""

    @pytest.fixture
    async def long_queue(self, queue: Queue, witness: redis.asyncio.Redis, queue_name: str) -> Queue:
        await queue.add_bulk({"name": "n", "data": number} for number in range(50_000))
        stream = f"{{chasqui:{queue_name}}}:stream"
        await witness.xgroup_create(stream, "default", "0")
        await witness.xreadgroup("default", "somebody", {stream: ">"}, count=1000)
        return queue

    async def middle(self, queue: Queue) -> str:
        """The place behind the first 20,000 that wait."""
        after = ""
        for _ in range(20):
            after = (await queue.jobs("waiting", after=after, limit=1000)).next or ""
        return after

    async def test_counts_pages_and_a_search_take_less_than_20_ms_each(self, long_queue: Queue) -> None:
        middle = await self.middle(long_queue)
        inspector_broker: dict[str, Callable[[], Awaitable[Any]]] = {
            "counts": long_queue.counts,
            "the first page": partial(long_queue.jobs, "waiting"),
            "a page in the middle": partial(long_queue.jobs, "waiting", after=middle),
            "what runs": partial(long_queue.jobs, "active"),
            "a job that is nowhere": partial(long_queue.get_job, "nowhere"),
            "the oldest": long_queue.oldest_age_ms,
        }
        for name, look in inspector_broker.items():
            assert await first_below(0.02, partial(_seconds_of, look)) < 0.02, name

    async def test_a_search_asks_a_few_times_however_many_run(
        self, long_queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        async with Proxy(redis_url) as proxy, Queue(queue_name, redis_url=proxy.url) as queue:
            await queue.counts()
            for look, most in ((partial(queue.get_job, "nowhere"), 12), (partial(queue.jobs, "active", limit=1000), 2)):
                before = proxy.count()
                await look()
                assert proxy.count() - before <= most


async def _seconds_of(look: Callable[[], Awaitable[Any]]) -> float:
    started = monotonic()
    await look()
    return monotonic() - started


class TestOneJob:
    async def test_a_job_is_found_in_every_state(self, queue: Queue, redis_url: str, queue_name: str) -> None:
        gate = Gate()
        async with Worker(queue_name, gate, redis_url=redis_url, concurrency=1):
            active = await queue.add("hold", 1)
            await eventually(lambda: gate.running == 1)
            waiting = await queue.add("wait", 2)
            delayed = await queue.add("later", 3, delay_ms=60_000)
            found = [await queue.get_job(job.id) for job in (active, waiting, delayed)]
            assert [(job.id, job.state, job.data) for job in found if job] == [
                (active.id, "active", 1),
                (waiting.id, "waiting", 2),
                (delayed.id, "delayed", 3),
            ]
            gate.opened.set()
            await eventually(lambda: counted(queue, waiting=0, active=0))
        assert await queue.get_job(active.id) is None  # it is done

    async def test_a_job_that_a_worker_receives_during_the_search_is_found(
        self, queue: Queue, stream: Stream, witness: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = await queue.add("mail")
        await witness.xgroup_create(stream.key, "default", "0")
        broker = queue._get_or_open_loop_session().inspector
        call = broker._call

        async def call_and_deliver(*words: Any) -> Any:
            reply = await call(*words)
            if words[0] == "XRANGE":
                await witness.xreadgroup("default", "other", {stream.key: ">"}, count=1)
            return reply

        monkeypatch.setattr(broker, "_call", call_and_deliver)
        found = await queue.get_job(job.id)
        assert found is not None
        assert (found.state, found.worker) == ("active", "other")

    async def test_a_job_that_another_program_has_delayed_without_an_index_is_found(
        self, queue: Queue, stream: Stream, witness: redis.asyncio.Redis
    ) -> None:
        for number in range(60):
            envelope = encode_envelope(f"job-{number}", encode_data(number), 1, number % 2, None)
            await witness.zadd(
                stream.key.replace(":stream", ":delayed"), {make_delayed_member("mail", envelope): 2e12 + number}
            )
        for number in (0, 59):
            found, status = await queue.get_job(f"job-{number}"), await queue.status(f"job-{number}")
            assert found is not None
            assert (found.state, found.data, found.due_ms) == ("delayed", number, 2 * 10**12 + number)
            assert (status.state, status.due_ms) == ("retrying" if number else "delayed", found.due_ms)
        assert await queue.get_job("job-60") is None

    async def test_a_job_with_an_id_of_its_own_is_found_in_a_queue_of_any_length(
        self, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        await queue.add_bulk({"name": "n"} for _ in range(1500))
        last = await queue.add("last", job_id="order-17")
        lost = await queue.add("lost")
        found = await queue.get_job(last.id)
        assert found is not None
        assert (found.state, found.name) == ("waiting", "last")
        assert await queue.get_job(lost.id) is None  # behind the first thousand

    async def test_a_job_with_an_id_of_its_own_is_active_while_it_runs(
        self, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        gate = Gate()
        async with Worker(queue_name, gate, redis_url=redis_url) as worker:
            await queue.add("hold", 1, job_id="order-17")
            await eventually(lambda: gate.running)
            found = await queue.get_job("order-17")
            assert found is not None
            assert (found.state, found.data, found.worker, found.deliveries) == ("active", 1, worker.consumer_id, 1)
            gate.opened.set()
            await eventually(lambda: counted(queue, active=0))

    async def test_a_job_that_waits_for_its_retry_is_delayed_and_then_dead(
        self, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        async with Worker(queue_name, fails, redis_url=redis_url, max_attempts=2):
            job = await queue.add("fail", backoff=60_000)
            await eventually(lambda: counted(queue, delayed=1))
            found = await queue.get_job(job.id)
            assert found is not None
            assert (found.state, found.attempt) == ("delayed", 1)
            await queue.run_now(job.id)
            await eventually(lambda: counted(queue, dead=1))
        found = await queue.get_job(job.id)
        assert found is not None
        assert (found.state, found.reason) == ("dead", "retries_exhausted")
        assert found.error == "ValueError: no such user"

    async def test_a_delivered_job_behind_thousands_of_others_is_delivered(
        self, queue: Queue, stream: Stream, witness: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jobs = await queue.add_bulk([{"name": "n"}] * 2100)
        await witness.xgroup_create(stream.key, "default", id="0")
        await witness.xreadgroup("default", "official", {stream.key: ">"}, count=2050)
        ids = [jobs[number].id for number in (0, 1000, 2049, 2050)]  # the last one waits
        assert await queue._inspector.find_delivered(ids) == set(ids[:3])
        monkeypatch.setattr("pychasqui.inspector.MAX_DELIVERED", 2000)
        assert await queue._inspector.find_delivered(ids) == set(ids)  # it may be among those that are not read

    async def test_a_search_for_hundreds_of_delivered_jobs_reads_each_entry_once(
        self, queue: Queue, stream: Stream, witness: redis.asyncio.Redis
    ) -> None:
        ids = [job.id for job in await queue.add_bulk([{"name": "n", "data": "x" * 400}] * 4000)][-500:]
        await witness.xgroup_create(stream.key, "default", id="0")
        await witness.xreadgroup("default", "official", {stream.key: ">"}, count=4000)
        search = partial(_seconds_of, partial(queue._inspector.find_delivered, ids))
        assert await first_below(0.15, search, within_s=10) < 0.15  # 0.7 if each id is looked for by itself

    async def test_large_jobs_are_searched_in_replies_of_bounded_size(
        self,
        queue: Queue,
        redis_url: str,
        stream: Stream,
        witness: redis.asyncio.Redis,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("pychasqui._redis.entry_pages.FIRST_PAGE", 3)
        monkeypatch.setattr("pychasqui._redis.entry_pages.PAGE_BYTES", 40_000)
        await queue.add_bulk([{"name": "n", "data": "x" * 10_000}] * 40)
        await witness.xgroup_create(stream.key, "default", id="0")
        await witness.xreadgroup("default", "official", {stream.key: ">"}, count=20)
        sizes, genuine = list[int](), Broker.call

        async def call_and_measure(broker: Broker, *words: Any, **options: Any) -> Any:
            reply = await genuine(broker, *words, **options)
            sizes.append(len(repr(reply)))
            return reply

        monkeypatch.setattr(Broker, "call", call_and_measure)
        async with Queue(queue.name, redis_url=redis_url) as other:
            assert await other.get_job("nowhere") is None
            assert await other._inspector.find_delivered(["nowhere"]) == set()
            assert await other.cancel("nowhere") == "unknown"
            await other.status("nowhere")
        assert len(sizes) > 40
        assert max(sizes) < 60_000

    async def test_an_unknown_job_is_none(self, queue: Queue) -> None:
        assert await queue.get_job("nowhere") is None


class TestWorkers:
    async def test_workers_are_listed_with_their_names_and_running_jobs(
        self, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        gate = Gate()
        before = time() * 1000
        async with Worker(queue_name, gate, redis_url=redis_url, concurrency=30, lease_ms=300) as worker:
            jobs = await queue.add_bulk({"name": "hold"} for _ in range(25))
            await eventually(lambda: _is_busy(queue, 25))
            (listed,) = await queue.workers()
            gate.opened.set()
            await eventually(lambda: _is_busy(queue, 0))
        assert (listed.consumer_id, listed.host, listed.pid) == (worker.consumer_id, socket.gethostname(), os.getpid())
        assert before - 100 <= listed.started_at_ms <= time() * 1000
        assert (listed.concurrency, listed.busy, len(listed.job_ids)) == (30, 25, 20)
        assert set(listed.job_ids) <= {job.id for job in jobs}

    async def test_workers_are_listed_while_they_live(
        self, queue: Queue, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        async with Worker(queue_name, fails, redis_url=redis_url), Worker(queue_name, fails, redis_url=redis_url):
            assert len(await queue.workers()) == 2
            await witness.set(f"{{chasqui:{queue_name}}}:worker:other", b"\xc1", ex=60)
            await witness.zadd(f"{{chasqui:{queue_name}}}:workers", {"other": 2 * time() * 1000})
            known = {worker.consumer_id: worker.error for worker in await queue.workers()}
            assert len(known) == 3
            assert "malformed" in str(known["other"])  # it lives by its lease, and its record is malformed
        assert [worker.consumer_id for worker in await queue.workers()] == ["other"]

    async def test_the_oldest_job_shows_how_far_they_are_behind(
        self, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        await queue.add("wait")
        await asyncio.sleep(0.05)
        await queue.add("wait")
        age = await queue.oldest_age_ms()
        assert age is not None
        assert 45 <= age < 5000


class TestRemoving:
    async def test_waiting_jobs_go_and_running_jobs_stay(self, queue: Queue, redis_url: str, queue_name: str) -> None:
        gate = Gate()
        async with Worker(queue_name, gate, redis_url=redis_url, concurrency=1):
            await queue.add("hold")
            await eventually(lambda: gate.running)
            await queue.add_bulk({"name": "wait"} for _ in range(1200))
            unique = await queue.add("wait", job_id="order-17")
            waiting = (await queue.counts()).waiting
            assert await queue.purge("waiting") == waiting
            assert (await queue.add("wait", job_id=unique.id)).is_new  # its id is free
            gate.opened.set()
            await eventually(lambda: counted(queue, waiting=0, active=0))

    async def test_delayed_jobs_go_with_their_ids(self, queue: Queue, stream: Stream) -> None:
        await queue.add_bulk({"name": "later", "delay_ms": 60_000, "job_id": f"j{n}"} for n in range(700))
        assert await queue.purge("delayed") == 700
        assert [found for found in await stream.keys() if not found.startswith("ledger")] == []

    async def test_dead_jobs_go(self, queue: Queue, redis_url: str, queue_name: str) -> None:
        async with Worker(queue_name, fails, redis_url=redis_url, max_attempts=1):
            await queue.add_bulk({"name": "fail"} for _ in range(10))
            await eventually(lambda: counted(queue, dead=10))
        assert await queue.purge("dead") == 10
        assert await queue.purge("dead") == 0

    async def test_a_drain_leaves_delayed_jobs_by_default(self, queue: Queue) -> None:
        await queue.add_bulk({"name": "n", "delay_ms": delay} for delay in (0, 0, 60_000))
        assert await queue.drain() == 2
        assert await queue.counts() == (0, 0, 1, 0, 0)
        await queue.add("n")
        assert await queue.drain(delayed=True) == 2

    @pytest.mark.parametrize("state", ("waiting", "delayed"))
    async def test_a_purge_beside_a_producer_ends(
        self, queue: Queue, redis_url: str, queue_name: str, state: Literal["waiting", "delayed"]
    ) -> None:
        """It removes what was there when it began."""
        delay_ms = 60_000 if state == "delayed" else 0
        jobs = [{"name": "n", "delay_ms": delay_ms} for _ in range(600)]
        is_over = asyncio.Event()

        async def produce() -> None:
            async with Queue(queue_name, redis_url=redis_url) as other:
                while not is_over.is_set():
                    await other.add_bulk(jobs)

        async def has_some() -> bool:
            return getattr(await queue.counts(), state) > 0

        await queue.add_bulk(jobs * 2)
        producing = asyncio.create_task(produce())
        try:
            async with asyncio.timeout(40):
                assert await queue.purge(state) >= len(jobs * 2)
                for _ in range(4):
                    await eventually(has_some)  # a purge may be quicker than the producer
                    assert await queue.purge(state) >= 1
        finally:
            is_over.set()
            await producing

    async def test_an_empty_queue_has_nothing_to_remove(self, queue: Queue) -> None:
        assert [await queue.purge(state) for state in ("waiting", "delayed", "dead")] == [0, 0, 0]
        assert await queue.obliterate() == 0

    async def test_obliterate_removes_the_whole_queue_and_nothing_of_another_queue(
        self, queue: Queue, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, stream: Stream
    ) -> None:
        async with Queue(f"{queue_name}-2", redis_url=redis_url) as other:
            await other.add("stays")
            async with Worker(queue_name, fails, redis_url=redis_url, max_attempts=1):
                await queue.add_bulk({"name": "n", "delay_ms": delay} for delay in (0, 60_000))
                await eventually(lambda: counted(queue, dead=1))
            await queue.repeatables.upsert("beat", repeat=RepeatPattern.every(60_000))
            await queue.pause()
            assert await queue.obliterate() >= 5
            assert await stream.keys() == []
            assert await other.purge("waiting") == 1

    async def test_a_worker_goes_on_after_everything_is_gone(
        self, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        done: asyncio.Queue[Job] = asyncio.Queue()
        async with Worker(queue_name, done.put, redis_url=redis_url):
            await queue.add("n", 1)
            await done.get()
            await queue.obliterate()
            await queue.add("n", 2)
            assert (await asyncio.wait_for(done.get(), 40)).data == 2
            await eventually(lambda: counted(queue, waiting=0, active=0))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    (
        ({"state": "done"}, InvalidArgument, "state is 'done', must be one of waiting, active, delayed, dead"),
        ({"state": None}, InvalidArgument, "state is None"),
        ({"state": ["waiting"]}, InvalidArgument, "state is"),
        ({"limit": 0}, InvalidArgument, "limit is 0, must be from 1 to 1000"),
        ({"limit": 1001}, InvalidArgument, "limit is 1001, must be from 1 to 1000"),
        ({"limit": "5"}, InvalidType, "limit must be an int"),
        *(
            ({"state": state, "after": after}, InvalidArgument, "after is")
            for state in ("waiting", "active", "delayed", "dead")
            for after in (None, 5, b"1-1", "x", "-", "--1", "1-2-3", "²", "5", "1-", "9" * 25 + "-1")
        ),
    ),
)
async def test_a_page_refuses_bad_arguments(
    queue: Queue, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await queue.jobs(**{"state": "waiting", **arguments})


async def test_methods_of_inspection_refuse_bad_arguments(queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="job_id"):
        await queue.get_job(17)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="state is 'active', must be waiting, delayed or dead"):
        await queue.purge("active")
    with pytest.raises(InvalidArgument, match="state is 7"):
        await queue.purge(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="delayed must be True or False"):
        await queue.drain(delayed="yes")  # type: ignore[arg-type]


async def _is_busy(queue: Queue, busy: int) -> bool:
    return [worker.busy for worker in await queue.workers()] == [busy]
