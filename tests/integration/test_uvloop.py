"""The core once more on uvloop, whose transports, timers and signals are of another make."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from time import monotonic, thread_time
from typing import Any

import pytest
import redis.asyncio

from pychasqui import AddUnknown, AuthenticationFailed, ConnectionLost, Job, NotRedis, Queue, Worker
from pychasqui._redis.connector import Connector
from tests.support.fake_server import FakeServer
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.streams import Stream
from tests.support.waiting import eventually

uvloop = pytest.importorskip("uvloop")

Scenario = Callable[..., Coroutine[Any, Any, None]]


@pytest.fixture
def run(server: RedisServer, redis_url: str, queue_name: str) -> Callable[[Scenario], None]:
    """Run a scenario on uvloop, with an address, a queue's name and its stream; the stream is emptied at the end."""

    async def play(scenario: Scenario) -> None:
        async with redis.asyncio.Redis.from_url(redis_url) as client:
            stream = Stream(client, queue_name)
            await scenario(redis_url, queue_name, stream)
            await stream.clear()

    def on_uvloop(scenario: Scenario) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(play(scenario))

    return on_uvloop


def test_adds_of_every_kind_are_stored_in_order(run: Callable[[Scenario], None], server: RedisServer) -> None:
    async def scenario(url: str, name: str, stream: Stream) -> None:
        for each in (url, server.tcp_url, f"{server.tcp_url}?protocol=3"):
            async with Queue(name, redis_url=each) as queue:
                jobs = [await queue.add("send", number) for number in range(20)]
                jobs += await asyncio.gather(*(queue.add("send", number) for number in range(3000)))
                jobs += await queue.add_bulk({"name": "send", "data": number} for number in range(5000))
            assert await stream.ids() == [job.id for job in jobs]
            await stream.clear()

    run(scenario)


@pytest.mark.parametrize("moment", ("cut_before_request", "cut_after_request", "cut_mid_reply"))
def test_each_job_is_added_once_over_cut_connections(run: Callable[[Scenario], None], moment: str) -> None:
    async def scenario(url: str, name: str, stream: Stream) -> None:
        async with Proxy(url) as proxy, Queue(name, redis_url=proxy.url) as queue:
            getattr(proxy, moment)(b"EVAL", times=3)
            jobs = await asyncio.gather(*(queue.add("send", number) for number in range(100)))
            jobs += await queue.add_bulk({"name": "send", "data": number} for number in range(5000))
        assert sorted(await stream.ids()) == sorted(job.id for job in jobs)

    run(scenario)


def test_a_frozen_line_costs_the_timeout(run: Callable[[Scenario], None]) -> None:
    async def scenario(url: str, name: str, stream: Stream) -> None:
        async with Proxy(url) as proxy, Queue(name, redis_url=proxy.url, timeout_s=0.3) as queue:
            await queue.add("send", 0)
            proxy.freeze()
            start = monotonic()
            with pytest.raises(AddUnknown):
                await queue.add("send", 1)
            with pytest.raises(ConnectionLost):
                await queue.add("send", 2)
            assert monotonic() - start < 4
            proxy.thaw()

    run(scenario)


def test_a_refusing_server_is_named(run: Callable[[Scenario], None], server: RedisServer) -> None:
    async def scenario(url: str, name: str, stream: Stream) -> None:
        async with Queue(name, redis_url=f"redis://:wrong@127.0.0.1:{server.port}") as queue:
            with pytest.raises(AuthenticationFailed):
                await queue.add("send")
        async with FakeServer(b"HTTP/1.1 400 Bad Request\r\n\r\n") as fake, Queue(name, redis_url=fake.url) as queue:
            with pytest.raises(NotRedis):
                await queue.add("send")

    run(scenario)


def test_cancelled_calls_never_shift_the_others(run: Callable[[Scenario], None]) -> None:
    async def scenario(url: str, name: str, stream: Stream) -> None:
        chance, loop = random.Random(7), asyncio.get_running_loop()
        connection = Connector(url, tls=False, client_name="chasqui-test").make_connection(timeout_s=5)

        async def ask(number: int) -> bool:
            return bool(await connection.call("ECHO", f"tag-{number}") == b"tag-%d" % number)

        tasks = [loop.create_task(ask(number)) for number in range(2000)]
        for task in tasks:
            if chance.random() < 0.4:
                loop.call_later(chance.random() * 0.02, task.cancel)
        replies = await asyncio.gather(*tasks, return_exceptions=True)
        assert set(map(type, replies)) == {bool, asyncio.CancelledError}
        assert False not in replies
        await connection.close()

    run(scenario)


@pytest.mark.parametrize("kind", ("async", "plain"))
def test_a_worker_runs_each_job_once_and_leaves_nothing(run: Callable[[Scenario], None], kind: str) -> None:
    async def scenario(url: str, name: str, stream: Stream) -> None:
        ran: Counter[int] = Counter()

        def handle(job: Job) -> None:
            ran[job.data] += 1

        async def handle_async(job: Job) -> None:
            await asyncio.sleep(0)
            handle(job)

        handler = handle if kind == "plain" else handle_async
        async with Proxy(url) as proxy, Queue(name, redis_url=url) as queue:
            proxy.cut_after_request(b"XREADGROUP")
            async with Worker(name, handler, redis_url=proxy.url, concurrency=20):
                await queue.add_bulk({"name": "count", "data": number} for number in range(1000))
                await eventually(stream.is_settled)
        assert ran == Counter(range(1000))
        assert await stream.consumers() == []

    run(scenario)


def test_an_idle_worker_closes_at_once(run: Callable[[Scenario], None]) -> None:
    async def scenario(url: str, name: str, stream: Stream) -> None:
        async def handle(job: Job) -> None:
            pass

        async with Worker(name, handle, redis_url=url, read_block_ms=60_000) as worker:
            await asyncio.sleep(0.1)
            start = monotonic()
            await worker.close()
            assert monotonic() - start < 10

    run(scenario)


def test_a_handler_that_never_awaits_starves_no_other_task(run: Callable[[Scenario], None]) -> None:
    async def scenario(url: str, name: str, stream: Stream) -> None:
        async def handle(job: Job) -> None:
            end = monotonic() + 0.005
            while monotonic() < end:
                pass

        async with Queue(name, redis_url=url) as queue, Worker(name, handle, redis_url=url, concurrency=20):
            await queue.add_bulk({"name": "count", "data": number} for number in range(60))
            looking = asyncio.create_task(eventually(stream.is_settled))
            longest = 0.0
            while not looking.done():
                before = thread_time()  # what other processes take is not the worker's doing
                await asyncio.sleep(0)
                longest = max(longest, thread_time() - before)
            await looking
            assert longest < 0.15

    run(scenario)
