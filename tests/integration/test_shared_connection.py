"""All queues of a process with the same URL and options add over one connection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from pychasqui import Queue
from pychasqui.errors import ChasquiError
from pychasqui.sync import SyncQueue
from tests.support.server import RedisServer
from tests.support.waiting import eventually


@asynccontextmanager
async def opened(count: int, url: str, **options: Any) -> AsyncIterator[list[Queue]]:
    async with AsyncExitStack() as stack:
        names = [f"q-{uuid4().hex[:12]}" for _ in range(count)]
        yield [await stack.enter_async_context(Queue(name, redis_url=url, **options)) for name in names]


def connections(server: RedisServer) -> list[str]:
    """The names of the connections of queues."""
    with server.client() as client:
        return [one["name"] for one in client.client_list() if one["name"].startswith("chasqui-queue-")]


async def empty(queues: list[Queue]) -> int:
    return sum(await asyncio.gather(*(queue.purge("waiting") for queue in queues)))


async def test_a_hundred_queues_have_one_connection(server: RedisServer, redis_url: str) -> None:
    async with opened(100, redis_url) as queues:
        await asyncio.gather(*(queue.add("send", 1) for queue in queues))
        await asyncio.gather(*(queue.add_bulk([{"name": "send"}] * 3) for queue in queues))
        assert [(await queue.counts()).waiting for queue in queues] == [4] * 100
        assert len(connections(server)) == 1
        assert await empty(queues) == 400
    await eventually(lambda: connections(server) == [])


async def test_a_queue_that_closes_leaves_the_others_adding(server: RedisServer, redis_url: str) -> None:
    """Also the one that has opened the connection, and while the others have adds on their way."""
    async with opened(3, redis_url) as queues:
        await queues[0].add("send")
        adds = [asyncio.ensure_future(queue.add("send", number)) for queue in queues for number in range(50)]
        await asyncio.sleep(0)
        await queues[0].close()
        await queues[1].add("send")
        assert all(job.is_new for job in await asyncio.gather(*adds))
        assert len(connections(server)) == 1
        assert await empty(queues[1:]) == 101
        async with Queue(queues[0].name, redis_url=redis_url) as again:
            assert await again.purge("waiting") == 51
            assert len(connections(server)) == 1


async def test_a_lost_connection_is_opened_once_for_all(server: RedisServer, redis_url: str) -> None:
    async with opened(20, redis_url) as queues:
        for _ in range(3):
            await asyncio.gather(*(queue.add("send") for queue in queues))
            assert len(connections(server)) == 1
            server.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await asyncio.gather(*(queue.add("send") for queue in queues))
        assert len(connections(server)) == 1
        assert await empty(queues) == 80


async def test_an_add_that_ends_the_connection_fails_alone() -> None:
    """The server closes the connection at a job that is larger than it takes."""
    with RedisServer("--proto-max-bulk-len", "1mb") as server:
        async with (
            Queue("large", redis_url=server.url, timeout_s=2, max_payload_bytes=2**24) as large,
            Queue("small", redis_url=server.url, timeout_s=2) as small,
        ):
            await small.add("send")
            refused = asyncio.ensure_future(large.add("send", bytes(2**21)))
            added = 1
            while not refused.done() or added < 20:
                await small.add("send")
                added += 1
            with pytest.raises(ChasquiError):
                await refused
            assert ((await small.counts()).waiting, (await large.counts()).waiting) == (added, 0)


async def test_a_queue_that_only_reads_keeps_no_other_from_the_master(caplog: pytest.LogCaptureFixture) -> None:
    """It has connected while the server was a replica, which the queue that adds has been refused by."""
    with RedisServer() as server:
        server.execute("REPLICAOF", "127.0.0.1", "1")
        async with (
            Queue("adds", redis_url=server.url, timeout_s=20) as adds,
            Queue("reads", redis_url=server.url, timeout_s=20) as reads,
        ):
            added = asyncio.ensure_future(adds.add("send"))
            await eventually(lambda: "READONLY" in caplog.text)
            await reads.counts()
            server.execute("REPLICAOF", "NO", "ONE")
            await added
            assert (await adds.counts()).waiting == 1
            await reads.counts()


async def test_the_last_queue_that_is_closed_ends_the_connection_of_collected_ones(
    server: RedisServer, redis_url: str
) -> None:
    async with opened(1, redis_url) as queues:
        await queues[0].counts()
        for _ in range(3):
            await Queue("orders", redis_url=redis_url).counts()
        gc.collect()
        assert len(connections(server)) == 1
    await eventually(lambda: connections(server) == [])


async def test_queues_that_are_all_collected_without_a_close_leave_no_connection(
    server: RedisServer, redis_url: str
) -> None:
    for _ in range(3):
        queue = Queue(f"q-{uuid4().hex[:12]}", redis_url=redis_url)
        await queue.add("send", 1)
        assert await empty([queue]) == 1
        del queue
        gc.collect()
    await eventually(lambda: connections(server) == [])


async def test_a_queue_that_is_collected_after_a_wait_for_a_result_leaves_no_connection(
    server: RedisServer, redis_url: str
) -> None:
    queue = Queue(f"q-{uuid4().hex[:12]}", redis_url=redis_url)
    with pytest.raises(TimeoutError):
        await queue.wait_for_result("none", timeout=0.1)
    assert len(connections(server)) > 1
    del queue
    gc.collect()
    await eventually(lambda: connections(server) == [])


async def test_bulks_of_large_jobs_of_several_queues_are_added_once(redis_url: str) -> None:
    """WATCH is one of the connection: the queues take turns with transactions."""
    async with opened(3, redis_url) as queues:
        jobs = [{"name": "send", "data": bytes(10_000)}] * 120
        for _ in range(3):
            await asyncio.gather(*(queue.add_bulk(jobs) for queue in queues for _ in range(2)))
        assert [(await queue.counts()).waiting for queue in queues] == [720] * 3
        assert await empty(queues) == 2160


async def test_queues_with_another_time_or_other_credentials_have_their_own(
    server: RedisServer, redis_url: str
) -> None:
    def provide() -> tuple[str | None, str | None]:
        return None, None

    options: list[dict[str, Any]] = [{}, {"timeout_s": 3}, {"credential_provider": provide}]
    async with AsyncExitStack() as stack:
        for one in options * 2:
            queue = await stack.enter_async_context(Queue("orders", redis_url=redis_url, **one))
            await queue.counts()
        assert len(connections(server)) == 3


async def test_credentials_are_renewed_after_the_queue_that_logged_in_is_closed(
    server: RedisServer, redis_url: str
) -> None:
    asked = 0

    async def provide() -> tuple[str | None, str, float]:
        nonlocal asked
        asked += 1
        return "ann", "first", 0.2

    server.execute("ACL", "SETUSER", "ann", "on", ">first", "~*", "&*", "+@all")
    async with opened(2, redis_url, credential_provider=provide) as queues:
        await queues[0].counts()
        await queues[1].counts()
        await queues[0].close()
        before = asked
        await eventually(lambda: asked >= before + 2)
        await queues[1].counts()


async def test_each_add_gets_its_own_reply_after_refused_credentials() -> None:
    """Redis 8 sends no reply if it refuses AUTH behind other commands that it has read at once."""
    adds: list[asyncio.Future[Any]] = []
    asked = 0

    async def provide() -> tuple[str | None, str, float]:
        nonlocal asked
        asked += 1
        if asked == 2:
            server.execute("ACL", "SETUSER", "ann", "resetpass", ">second")
            server.pause()  # so that it reads AUTH and the adds before and behind it at once
            adds.extend(asyncio.ensure_future(queue.add_bulk([{"name": "send"}] * 5)) for queue in queues)
            await asyncio.sleep(0)
            adds.extend(asyncio.ensure_future(queue.add_bulk([{"name": "send"}] * 2)) for queue in queues)
            asyncio.get_running_loop().call_later(0.05, server.resume)
        return "ann", "first" if asked < 3 else "second", 0.1 if asked == 1 else 60.0

    with RedisServer() as server:
        server.execute("ACL", "SETUSER", "ann", "on", ">first", "~*", "&*", "+@all")
        async with opened(3, server.url, credential_provider=provide) as queues:
            for queue in queues:
                await queue.add("send")
            await eventually(lambda: len(adds) == 6)
            await asyncio.gather(*adds)
            assert [(await queue.counts()).waiting for queue in queues] == [8] * 3


def test_synchronous_queues_of_all_threads_share_one(server: RedisServer, redis_url: str) -> None:
    queues = [SyncQueue(f"q-{uuid4().hex[:12]}", redis_url=redis_url) for _ in range(10)]
    for queue in queues:
        queue.add("send")
    assert len(connections(server)) == 1
    assert [queue.purge("waiting") for queue in queues] == [1] * 10
    for queue in queues:
        queue.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the first loop's sockets are never closed
def test_each_event_loop_has_its_own(server: RedisServer, redis_url: str) -> None:
    """A loop that ends takes its connection with it; a queue that is used in the next one opens another."""
    first, second = (Queue(f"q-{uuid4().hex[:12]}", redis_url=redis_url) for _ in range(2))

    async def add() -> int:
        await asyncio.gather(first.add("send"), second.add("send"))
        return len(connections(server))

    async def add_in_another_loop() -> int:
        return await asyncio.to_thread(asyncio.run, other())

    async def other() -> int:
        async with Queue(first.name, redis_url=redis_url) as queue:
            await queue.add("send")
            return len(connections(server))

    async def both() -> tuple[int, int]:
        return await add(), await add_in_another_loop()

    assert asyncio.run(both()) == (1, 2)

    async def again() -> int:
        await add()
        added = await empty([first, second])
        await first.close()
        await second.close()
        return added

    assert asyncio.run(again()) == 5
    gc.collect()
