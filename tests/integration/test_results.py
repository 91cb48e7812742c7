"""Results: what handlers return, kept for a while with the ack, and read by id."""

from __future__ import annotations

import asyncio
import datetime
import logging
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
import redis.asyncio

from pychasqui import DecodeError, InvalidArgument, InvalidType, Job, Queue, ReplyError, UnrecoverableError, Worker
from pychasqui._redis.scripts import ACK_WITH_RESULT
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.streams import Stream
from tests.support.waiting import eventually

SELF: list[Any] = []
SELF.append(SELF)
VALUES: tuple[Any, ...] = (
    0,
    -1,
    2**64 - 1,
    1.5,
    True,
    False,
    "",
    "ü",
    b"",
    b"\x00\xff",
    [],
    {},
    [1, [2, {"three": None}]],
    {"r": 1},
    "x" * 100_000,
)


@pytest.fixture
def stream(witness: redis.asyncio.Redis, queue_name: str) -> Stream:
    return Stream(witness, queue_name)


async def echo(job: Job) -> Any:
    return job.data


def key(queue_name: str, job_id: str) -> str:
    return f"{{chasqui:{queue_name}}}:result:{job_id}"


async def is_done(queue: Queue) -> bool:
    counts = await queue.counts()
    return counts.waiting == counts.active == counts.delayed == 0


class TestStored:
    async def test_any_value_that_a_handler_returns_comes_back_and_is_plain_msgpack(
        self, queue: Queue, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        jobs = await queue.add_bulk({"name": "echo", "data": value} for value in VALUES)
        async with Worker(queue_name, echo, redis_url=redis_url, store_results=True):
            await eventually(lambda: is_done(queue))
        results = await queue.get_job_result_bulk(job.id for job in jobs)
        assert [(type(result), result) for result in results] == [(type(value), value) for value in VALUES]
        stored = [await witness.get(key(queue_name, job.id)) for job in jobs]
        assert [msgpack.unpackb(raw) for raw in stored] == list(VALUES)
        assert stored[VALUES.index({"r": 1})] == b"\x81\xa1r\x01"

    async def test_a_result_of_none_is_stored_as_nil(
        self, queue: Queue, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        async with Worker(queue_name, echo, redis_url=redis_url, store_results=True):
            job = await queue.add("echo", None)
            await eventually(lambda: is_done(queue))
        assert await witness.get(key(queue_name, job.id)) == b"\xc0"
        assert await queue.get_job_result(job.id) is None

    async def test_no_result_is_stored_unless_asked_for(
        self, queue: Queue, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        async with Worker(queue_name, echo, redis_url=redis_url):
            job = await queue.add("echo", 1)
            await eventually(lambda: is_done(queue))
        assert await queue.get_job_result(job.id) is None
        assert not [found for found in await stream.keys() if found.startswith("result:")]

    async def test_jobs_that_failed_gave_up_or_are_not_done_have_none(
        self, queue: Queue, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        async def fails(job: Job) -> None:
            raise UnrecoverableError("no") if job.data else ValueError("no")

        later = await queue.add("later", delay_ms=50_000)
        jobs = await queue.add_bulk({"name": "fail", "data": data, "attempts": 1} for data in (0, 1))
        async with Worker(queue_name, fails, redis_url=redis_url, store_results=True):
            await eventually(lambda: _is_dead(queue, 2))
        assert await queue.get_job_result_bulk([later.id, *(job.id for job in jobs), "unknown"]) == [None] * 4
        assert not [found for found in await stream.keys() if found.startswith("result:")]
        assert await queue.drain(delayed=True) + await queue.purge("dead") == 3

    async def test_a_job_that_fails_first_has_the_result_of_its_last_run(
        self, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        async def succeeds_at_last(job: Job) -> int:
            if job.attempt < 2:
                raise ValueError("not yet")
            return job.attempt

        async with Worker(queue_name, succeeds_at_last, redis_url=redis_url, store_results=True):
            job = await queue.add("try", backoff=1)
            assert await job.wait_for_result(timeout=40) == 2

    async def test_plain_functions_return_results_too(self, queue: Queue, redis_url: str, queue_name: str) -> None:
        def double(job: Job) -> int:
            return 2 * int(job.data)

        async with Worker(queue_name, double, redis_url=redis_url, store_results=True, concurrency=2):
            assert await (await queue.add("double", 21)).wait_for_result() == 42

    @pytest.mark.parametrize("ttl_ms", (999, 1500, 61_234))
    async def test_results_are_kept_to_the_millisecond(
        self, queue: Queue, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, ttl_ms: int
    ) -> None:
        async with Worker(queue_name, echo, redis_url=redis_url, store_results=True, result_ttl_ms=ttl_ms):
            job = await queue.add("echo", 1)
            left = await eventually(lambda: _positive(witness.pttl(key(queue_name, job.id))), every=0.001)
        assert ttl_ms - 500 < left <= ttl_ms

    async def test_results_go_when_their_time_is_over(self, queue: Queue, redis_url: str, queue_name: str) -> None:
        async with Worker(queue_name, echo, redis_url=redis_url, store_results=True, result_ttl_ms=60):
            job = await queue.add("echo", 1)
            assert await job.wait_for_result() == 1
            await eventually(lambda: _is_none(queue, job.id))

    @pytest.mark.parametrize(
        "value",
        (datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC), {1, 2}, object(), 2**64, "\ud800", SELF, lambda: 1),
        ids=("datetime", "set", "object", "2**64", "surrogate", "itself", "function"),
    )
    async def test_a_result_that_cannot_be_stored_is_reported_and_the_job_is_done(
        self,
        queue: Queue,
        redis_url: str,
        queue_name: str,
        value: Any,
        caplog: pytest.LogCaptureFixture,
        stream: Stream,
    ) -> None:
        runs: list[int] = []

        async def handle(job: Job) -> Any:
            runs.append(job.attempt)
            return value

        async with Worker(queue_name, handle, redis_url=redis_url, store_results=True):
            job = await queue.add("make")
            await eventually(lambda: is_done(queue))
            await eventually(lambda: "cannot be stored, the job is done" in caplog.text)
        assert runs == [0]
        assert await queue.dlq.count() == 0
        assert await queue.get_job_result(job.id) is None
        assert not [found for found in await stream.keys() if found.startswith("result:")]

    async def test_a_strange_result_is_ignored_where_no_results_are_stored(
        self, queue: Queue, redis_url: str, queue_name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def handle(job: Job) -> object:
            return object()

        async with Worker(queue_name, handle, redis_url=redis_url):
            await queue.add("make")
            await eventually(lambda: is_done(queue))
        assert await queue.dlq.count() == 0
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING and "result" in record.msg]

    async def test_an_id_is_free_again_once_its_result_is_there(
        self, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        async with Worker(queue_name, echo, redis_url=redis_url, store_results=True):
            assert await (await queue.add("echo", 1, job_id="order-17")).wait_for_result() == 1
            assert (await queue.add("echo", 2, job_id="order-17")).is_new
            await eventually(lambda: is_done(queue))
        assert await queue.get_job_result("order-17") == 2  # the last one's

    async def test_256_results_of_one_moment_are_stored_by_at_most_two_commands(
        self, queue: Queue, proxy: Proxy, queue_name: str
    ) -> None:
        gate, running = asyncio.Event(), 0

        async def handle(job: Job) -> int:
            nonlocal running
            running += 1
            await gate.wait()
            return 1

        await queue.add_bulk({"name": "wait"} for _ in range(256))
        async with Worker(
            queue_name, handle, redis_url=proxy.url, store_results=True, concurrency=256, events_enabled=False
        ):
            await eventually(lambda: running == 256)
            gate.set()
            await eventually(lambda: is_done(queue))
        by_text, by_hash = proxy.count(ACK_WITH_RESULT.text), proxy.count(ACK_WITH_RESULT.hash)
        assert 1 <= by_text + by_hash <= 2

    async def test_a_cut_at_the_ack_runs_nothing_twice_and_keeps_the_result(
        self, queue: Queue, proxy: Proxy, queue_name: str
    ) -> None:
        runs: list[str] = []

        async def handle(job: Job) -> str:
            runs.append(job.id)
            return "result"

        async with Worker(queue_name, handle, redis_url=proxy.url, store_results=True):
            for cut in (proxy.cut_before_request, proxy.cut_after_request, proxy.cut_mid_reply):
                fallen = cut(
                    b"stores what their handlers returned"
                )  # the script's text: the first call on a connection
                job = await queue.add("make")
                assert await job.wait_for_result() == "result"
                await eventually(lambda: is_done(queue))
                assert fallen.done.is_set()
                proxy.cut()
        assert len(runs) == 3

    async def test_scripts_may_be_flushed_at_any_time(
        self, queue: Queue, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        async with Worker(queue_name, echo, redis_url=redis_url, store_results=True):
            for number in range(3):
                assert await (await queue.add("echo", number)).wait_for_result() == number
                await witness.script_flush()


class TestReading:
    async def test_a_bulk_comes_in_the_order_of_its_ids_with_none_for_missing_results(
        self, queue: Queue, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        for number in range(1500):
            await witness.set(key(queue_name, f"j{number}"), msgpack.packb(number), ex=60)
        ids = [f"j{number}" for number in reversed(range(1500))]
        assert await queue.get_job_result_bulk([*ids, "unknown"]) == [*reversed(range(1500)), None]
        assert await queue.get_job_result_bulk([]) == []
        assert await queue.get_job_result_bulk(iter(ids[:2])) == [1499, 1498]

    async def test_a_result_that_is_no_msgpack_is_a_decode_error(
        self, queue: Queue, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        await witness.set(key(queue_name, "j"), b"\xc1", ex=60)
        with pytest.raises(DecodeError):
            await queue.get_job_result("j")
        with pytest.raises(DecodeError, match="the result of job 'j'"):
            await queue.wait_for_result("j")

    @pytest.mark.parametrize(
        ("job_id", "error"),
        ((7, InvalidArgument), (None, InvalidArgument), (b"id", InvalidArgument), ("\ud800", InvalidArgument)),
    )
    async def test_an_id_must_be_one(self, queue: Queue, job_id: Any, error: type[Exception]) -> None:
        for ask in (queue.get_job_result, queue.wait_for_result, queue.get_job_progress, queue.get_job_logs):
            with pytest.raises(error, match="job_id"):
                await ask(job_id)
        with pytest.raises(error, match="job_id"):
            await queue.get_job_result_bulk(["good", job_id])

    @pytest.mark.parametrize("job_ids", ("abc", b"abc", 7, None))
    async def test_several_ids_must_be_several(self, queue: Queue, job_ids: Any) -> None:
        for ask in (queue.get_job_result_bulk, queue.wait_for_results):
            with pytest.raises(InvalidType, match="job_ids must be several ids"):
                await ask(job_ids)


class TestWithoutMemory:
    @pytest.mark.parametrize("named", (False, True))
    async def test_running_jobs_finish_and_are_acked_and_their_results_are_kept(
        self, queue_name: str, named: bool
    ) -> None:
        may_end = asyncio.Event()
        runs: list[str] = []

        async def handle(job: Job) -> Any:
            runs.append(job.id)
            await may_end.wait()
            return job.data

        with RedisServer() as server:
            async with (
                Queue(queue_name, redis_url=server.url) as queue,
                Worker(queue_name, handle, redis_url=server.url, store_results=True),
            ):
                jobs = [await queue.add("send", n, job_id=f"j{n}" if named else None) for n in range(20)]
                await eventually(lambda: len(runs) == 20)
                server.execute("CONFIG", "SET", "maxmemory", 1)
                may_end.set()
                await eventually(lambda: is_done(queue))
                assert await queue.get_job_result_bulk(job.id for job in jobs) == list(range(20))
                with pytest.raises(ReplyError, match=r"OOM.*maxmemory"):
                    await queue.add("send")
                server.execute("CONFIG", "SET", "maxmemory", 0)
                assert await (await queue.add("send", 20)).wait_for_result() == 20
        assert len(runs) == len(set(runs)) == 21

    @pytest.mark.parametrize("events_enabled", (False, True))
    async def test_a_job_that_dies_meanwhile_is_among_the_dead_when_there_is_room(
        self, queue_name: str, events_enabled: bool
    ) -> None:
        may_end = asyncio.Event()
        runs: list[str] = []

        async def handle(job: Job) -> None:
            runs.append(job.id)
            await may_end.wait()
            raise UnrecoverableError("no")

        with RedisServer() as server:
            async with (
                Queue(queue_name, redis_url=server.url) as queue,
                Worker(queue_name, handle, redis_url=server.url, store_results=True, events_enabled=events_enabled),
            ):
                jobs = await queue.add_bulk([{"name": "send"}] * 5)
                await eventually(lambda: len(runs) == 5)
                server.execute("CONFIG", "SET", "maxmemory", 1)
                may_end.set()
                await asyncio.sleep(0.3)
                server.execute("CONFIG", "SET", "maxmemory", 0)
                await eventually(lambda: _is_dead(queue, 5))
                dead = await queue.jobs("dead")
                assert {job.id for job in dead.jobs} == {job.id for job in jobs}
                assert await is_done(queue)
        assert len(runs) == 5

    async def test_a_job_that_fails_meanwhile_is_run_again_when_there_is_room(self, queue_name: str) -> None:
        may_end = asyncio.Event()
        runs: list[int] = []

        async def handle(job: Job) -> str:
            runs.append(job.attempt)
            await may_end.wait()
            if job.attempt == 0:
                raise ValueError("no")
            return "at last"

        with RedisServer() as server:
            async with (
                Queue(queue_name, redis_url=server.url) as queue,
                Worker(queue_name, handle, redis_url=server.url, store_results=True),
            ):
                job = await queue.add("send", backoff=1)
                await eventually(lambda: runs)
                server.execute("CONFIG", "SET", "maxmemory", 1)
                may_end.set()
                await asyncio.sleep(0.3)
                server.execute("CONFIG", "SET", "maxmemory", 0)
                assert await job.wait_for_result(timeout=40) == "at last"
        assert runs == [0, 1]


async def _is_dead(queue: Queue, count: int) -> bool:
    return await queue.dlq.count() == count


async def _positive(number: Any) -> int:
    return max(0, int(await number))


async def _is_none(queue: Queue, job_id: str) -> bool:
    return await queue.get_job_result(job_id) is None
