"""Outcomes that Redis refuses are sent again, and waiters learn of those that it takes."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Job, JobFailed, Queue, UnrecoverableError, Worker
from pychasqui._redis.connector import Connector
from pychasqui._redis.keys import Keys
from pychasqui.metrics import GuardedSinks, InMemorySink
from tests.support.gate import Gate
from tests.support.proxy import Proxy
from tests.support.server import RedisServer, has_xackdel
from tests.support.streams import Stream
from tests.support.waiting import eventually

LAST_ID = "18446744073709551615-18446744073709551615"


@pytest.fixture
async def keys(queue_name: str, witness: redis.asyncio.Redis) -> AsyncIterator[Keys]:
    keys = Keys(queue_name)
    yield keys
    await witness.delete(keys.dead, keys.delayed)


class Dying:
    """A handler whose jobs die when they are let go, or fail if their data says so."""

    def __init__(self) -> None:
        self.runs: Counter[Any] = Counter()
        self.let_go = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        self.runs[job.data] += 1
        await self.let_go.wait()
        raise UnrecoverableError("no use")


async def wait_for(queue: Queue, jobs: list[Job]) -> list[BaseException | Any]:
    return await asyncio.gather(*(queue.wait_for_result(job.id, timeout=40) for job in jobs), return_exceptions=True)


async def test_the_ack_of_an_entry_that_becomes_pending_meanwhile_leaves_nothing_pending(
    redis_url: str, keys: Keys, witness: Any
) -> None:
    """The group is rebuilt while an ack is under way: the worker claims what it held, done jobs too."""
    await witness.xgroup_create(keys.stream, "default", mkstream=True)
    entry_id = await witness.xadd(keys.stream, {"d": b"x"})
    async with Proxy(redis_url) as proxy:
        connector = Connector(proxy.url, tls=False, client_name="acks")
        broker = connector.make_broker(keys, timeout_s=40)
        await broker.read_server_time_ms()
        proxy.freeze("replies")
        acking = asyncio.create_task(broker.ack("default", [entry_id]))
        await eventually(lambda: proxy.count(entry_id) == 1)
        await asyncio.sleep(0.05)  # the server has it: it answers for an entry that is not pending
        await witness.xclaim(keys.stream, "default", "me", 0, [entry_id], force=True)
        proxy.thaw()
        await acking
        await broker.close()
        connector.leave_embedded_server_and_stop_logging()
    assert await witness.xlen(keys.stream) == 0
    assert (await witness.xpending(keys.stream, "default"))["pending"] == 0


@pytest.mark.parametrize("is_timed", (False, True))
async def test_a_plain_ack_on_a_live_connection_leaves_without_a_task(
    redis_url: str, keys: Keys, witness: Any, is_timed: bool
) -> None:
    sink = InMemorySink()
    await witness.xgroup_create(keys.stream, "default", mkstream=True)
    entry_id = await witness.xadd(keys.stream, {"d": b"x"})
    await witness.xreadgroup("default", "me", {keys.stream: ">"})
    connector = Connector(redis_url, tls=False, client_name="acks")
    broker = connector.make_broker(keys, timeout_s=40, sinks=GuardedSinks([sink]) if is_timed else None)
    await broker.read_server_time_ms()
    before = asyncio.all_tasks()
    acked = broker.send_ack("default", [entry_id])
    assert asyncio.all_tasks() == before or not await has_xackdel(witness)
    await acked
    assert [answer.command for answer in sink.redis_answers] == ["ack"] * is_timed
    await broker.close()
    connector.leave_embedded_server_and_stop_logging()
    assert await witness.xlen(keys.stream) == 0
    assert (await witness.xpending(keys.stream, "default"))["pending"] == 0


class TestFence:
    """What a run decides counts only for the delivery that it began with."""

    @pytest.mark.parametrize("error", (ValueError, UnrecoverableError))
    async def test_an_entry_that_has_come_back_by_another_delivery_runs_again_and_is_not_moved(
        self,
        queue: Queue,
        make_worker: Callable[..., Worker],
        witness: Any,
        keys: Keys,
        stream: Stream,
        error: type[Exception],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A retry or burial changes nothing, and the worker looks for what it holds: no renewal comes for 20 s."""
        gate, attempts = asyncio.Event(), list[int]()
        caplog.set_level(logging.DEBUG, "chasqui.worker")

        async def handle(job: Job) -> None:
            attempts.append(job.attempt)
            if len(attempts) == 1:
                await gate.wait()
                raise error("of the first delivery")

        async with make_worker(handle, lease_ms=60_000, consumer_id="me", concurrency=1):
            await queue.add("run")
            await eventually(lambda: len(attempts) == 1)
            ((entry_id, _),) = await witness.xrange(keys.stream)
            for consumer in ("other", "me"):
                await witness.xclaim(keys.stream, "default", consumer, 0, [entry_id])
            gate.set()
            lost_at = monotonic()
            await eventually(lambda: len(attempts) == 2)
            assert monotonic() - lost_at < 15  # the next renewal would find it only after that
            await eventually(stream.is_settled)
            assert (await queue.dlq.count(), await witness.zcard(keys.delayed)) == (0, 0)
        assert attempts == [0, 2]
        assert "cannot settle 1 jobs" in caplog.text
        await witness.xgroup_delconsumer(keys.stream, "default", "other")

    async def test_an_entry_that_another_worker_has_is_left_to_it(
        self, queue: Queue, make_worker: Callable[..., Worker], witness: Any, keys: Keys, stream: Stream
    ) -> None:
        dying = Dying()
        async with make_worker(dying, lease_ms=60_000):
            await queue.add("run")
            await eventually(lambda: dying.runs.total() == 1)
            ((entry_id, _),) = await witness.xrange(keys.stream)
            await witness.xclaim(keys.stream, "default", "other", 0, [entry_id])
            dying.let_go.set()
            await asyncio.sleep(0.5)
            ((pending,)) = await witness.xpending_range(keys.stream, "default", "-", "+", 10)
            assert (pending["consumer"], pending["times_delivered"]) == (b"other", 2)
            assert (dying.runs.total(), await queue.dlq.count()) == (1, 0)
            await witness.xack(keys.stream, "default", entry_id)
            await witness.xdel(keys.stream, entry_id)
        await witness.xgroup_delconsumer(keys.stream, "default", "other")


class TestWaiters:
    async def test_waiters_for_dead_jobs_get_their_error_though_an_entry_of_the_batch_was_lost(
        self, queue: Queue, make_worker: Callable[..., Worker], witness: Any, keys: Keys, stream: Stream
    ) -> None:
        dying = Dying()
        async with make_worker(dying, concurrency=10):
            jobs = await queue.add_bulk({"name": "die", "data": number} for number in range(10))
            await eventually(lambda: len(dying.runs) == 10)
            waiting = asyncio.create_task(wait_for(queue, jobs[1:]))
            lost = (await witness.xrange(keys.stream, count=1))[0][0]
            await witness.xack(keys.stream, "default", lost)
            await witness.xdel(keys.stream, lost)
            dying.let_go.set()
            results = await waiting
        assert [type(result) for result in results] == [JobFailed] * 9
        assert await queue.dlq.count() == 9

    @pytest.mark.parametrize("moment", ("cut_before_request", "cut_after_request", "cut_mid_reply"))
    async def test_waiters_for_dead_jobs_get_their_error_though_the_reply_to_the_burial_was_lost(
        self, queue: Queue, queue_name: str, proxy: Proxy, keys: Keys, moment: str
    ) -> None:
        dying = Dying()
        async with Worker(queue_name, dying, redis_url=proxy.url):
            cut = getattr(proxy, moment)(b"Moves jobs that cannot succeed from the stream")
            jobs = await queue.add_bulk({"name": "die", "data": number} for number in range(5))
            await eventually(lambda: len(dying.runs) == 5)
            waiting = asyncio.create_task(wait_for(queue, jobs))
            dying.let_go.set()
            results = await waiting
            assert cut.done.is_set()
        assert [type(result) for result in results] == [JobFailed] * 5
        assert await queue.dlq.count() == 5


class TestRefusals:
    async def test_a_delayed_set_of_another_type_holds_up_retries_alone(
        self,
        queue: Queue,
        make_worker: Callable[..., Worker],
        witness: Any,
        keys: Keys,
        stream: Stream,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        runs: Counter[str] = Counter()

        async def handle(job: Job) -> None:
            runs[job.name] += 1
            if job.name == "fail":
                raise ValueError("again")
            if job.name == "die":
                raise UnrecoverableError("no use")

        await witness.set(keys.delayed, "a string")
        caplog.set_level(logging.WARNING, "chasqui.worker")
        async with make_worker(handle):
            await queue.add_bulk({"name": "fail", "data": number} for number in range(4000))
            await eventually(lambda: runs["fail"] == 4000, timeout=20)
            for _ in range(3):
                await queue.add_bulk({"name": "run", "data": number} for number in range(1000))
                await queue.add_bulk({"name": "die", "data": number} for number in range(100))
            await eventually(lambda: runs["run"] == 3000, timeout=40)
            await eventually(lambda: has_length(witness, keys.dead, 300))
            await eventually(lambda: has_length(witness, keys.stream, 4000))
            assert runs["fail"] == 4000, "what is pending runs only once"
            logged = [line for line in caplog.messages if "cannot reschedule failed jobs" in line]
            assert len(logged) == 1
            assert "WRONGTYPE" in logged[0]
            await witness.delete(keys.delayed)
            await eventually(lambda: has_length(witness, keys.stream, 0), timeout=40)
            assert await witness.zcard(keys.delayed) > 0

    async def test_dead_letters_without_ids_lose_no_dying_job(
        self, queue: Queue, make_worker: Callable[..., Worker], witness: Any, keys: Keys, stream: Stream
    ) -> None:
        dying = Dying()
        dying.let_go.set()
        await witness.xadd(keys.dead, {"d": "x"}, id=LAST_ID)
        async with make_worker(dying):
            await queue.add_bulk({"name": "die", "data": number} for number in range(10))
            await eventually(lambda: len(dying.runs) == 10)
            await asyncio.sleep(1)  # long enough for what must not happen: a second run, or a loss
            assert (await stream.length(), await stream.pending()) == (10, 10)
            await witness.delete(keys.dead)
            await eventually(lambda: has_length(witness, keys.dead, 10))
            await eventually(stream.is_settled)
        assert set(dying.runs.values()) == {1}

    async def test_a_worker_that_is_refused_ends_in_time_and_the_next_buries_its_dead(
        self, queue: Queue, make_worker: Callable[..., Worker], witness: Any, keys: Keys, stream: Stream
    ) -> None:
        dying = Dying()
        dying.let_go.set()
        await witness.set(keys.delayed, "a string")

        async def fail(job: Job) -> None:
            raise ValueError("again")

        async with make_worker(fail):
            await queue.add("fail")
            await eventually(stream.pending)
            await asyncio.sleep(0.2)
            closed_at = monotonic()
        assert monotonic() - closed_at < 10
        assert await stream.length() == 1
        async with make_worker(dying):
            await eventually(lambda: has_length(witness, keys.dead, 1), timeout=40)

    async def test_bad_members_that_cannot_be_buried_hold_up_no_job_and_run_none_twice(
        self, queue: Queue, make_worker: Callable[..., Worker], witness: Any, keys: Keys, stream: Stream
    ) -> None:
        gate = Gate()
        gate.opened.set()
        await witness.xadd(keys.dead, {"d": "x"}, id=LAST_ID)
        await witness.zadd(keys.delayed, {b"junk": 1, b"more junk": 2})
        async with make_worker(gate):
            await queue.add_bulk({"name": "run", "data": number, "delay_ms": 200} for number in range(20))
            await eventually(lambda: len(gate.finished) >= 20)
            await asyncio.sleep(1)  # long enough for what must not happen: a second run
            assert sorted(gate.finished) == list(range(20))
            assert await witness.zcard(keys.delayed) == 2


@pytest.mark.needs_all_rights("it takes rights away from the user that has all")
@pytest.mark.parametrize("stores_results", (False, True))
async def test_an_ack_that_is_refused_and_sent_again_writes_the_event_of_its_job_once(
    queue_name: str, witness: Any, caplog: pytest.LogCaptureFixture, stores_results: bool
) -> None:
    async def handle(job: Job) -> None:
        pass

    with RedisServer() as server:
        acks = ("xack", "xackdel") if await has_xackdel(witness) else ("xack",)
        keys = Keys(queue_name)
        async with (
            Queue(queue_name, redis_url=server.url) as queue,
            Worker(queue_name, handle, redis_url=server.url, store_results=stores_results),
        ):
            server.execute("ACL", "SETUSER", "default", *(f"-{command}" for command in acks))
            await queue.add("report")
            await eventually(lambda: "cannot ack jobs" in caplog.text)
            await asyncio.sleep(1)  # it is sent again, some times
            server.execute("ACL", "SETUSER", "default", *(f"+{command}" for command in acks))
            await queue.add("report")
            await eventually(lambda: server.execute("XLEN", keys.stream) == 0)
        with server.client() as client:
            events = [fields for _, fields in client.xrange(keys.events) if fields[b"e"] == b"completed"]
    assert len(events) == 2


async def test_a_job_that_was_delivered_more_than_four_billion_times_can_be_replayed(
    queue: Queue, make_worker: Callable[..., Worker], witness: Any, keys: Keys, stream: Stream
) -> None:
    gate = Gate()
    gate.opened.set()
    await witness.xgroup_create(keys.stream, "default", "0", mkstream=True)
    added = await queue.add_bulk({"name": "run", "data": number} for number in range(3))
    await witness.xreadgroup("default", "other", {keys.stream: ">"})
    for (entry_id, _), count in zip(await witness.xrange(keys.stream), (5_000_000_000, 2**62, 2**63 - 1), strict=True):
        await witness.xclaim(keys.stream, "default", "other", 0, [entry_id], retrycount=count, idle=3_600_000)
    async with make_worker(gate):
        await eventually(lambda: has_length(witness, keys.dead, 3), timeout=40)
        assert await queue.dlq.replay() == 3
        await eventually(lambda: len(gate.finished) == 3)
        await eventually(stream.is_settled)
    assert len(added) == 3


async def has_length(witness: Any, key: str, length: int) -> bool:
    return bool(await witness.xlen(key) == length)
