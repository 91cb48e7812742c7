"""Costs that are counted instead of timed: writes, commands, connections."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from typing import Any

import pytest

from pychasqui import Job, Queue, Worker
from pychasqui._core.limits import ACK_BATCH_WITH_EVENTS, READ_BATCH_WITH_EVENTS
from pychasqui._producer.adder import REMEMBERED_S
from pychasqui._redis.keys import REGISTRY, Keys
from pychasqui._redis.socket import Socket
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.streams import Stream
from tests.support.waiting import eventually


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets the size of each write of any connection of this process."""
    sizes: list[int] = []
    open_socket = Socket.connection_made

    def count_writes_and_open(socket: Socket, transport: Any) -> None:
        write = transport.write

        def count_and_write(data: bytes) -> None:
            sizes.append(len(data))
            write(data)

        monkeypatch.setattr(transport, "write", count_and_write)
        open_socket(socket, transport)

    monkeypatch.setattr(Socket, "connection_made", count_writes_and_open)
    return sizes


def sent(proxy: Proxy) -> Counter[str]:
    """How often each command was sent through the proxy; EVAL and EVALSHA are one."""
    names = (request.split(b"\r\n", 3)[2].decode().upper() for request in proxy.requests)
    return Counter("EVAL" if name == "EVALSHA" else name for name in names)


class TestAdds:
    async def test_1000_jobs_of_one_bulk_leave_in_three_writes_with_the_handshake_and_the_registry(
        self, redis_url: str, queue_name: str, stream: Stream, writes: list[int]
    ) -> None:
        writes.clear()  # those of the fixtures
        async with Queue(queue_name, redis_url=redis_url) as queue:
            await queue.add_bulk({"name": "send", "data": number} for number in range(1000))
            assert 1 <= len(writes) <= 3
        assert await stream.length() == 1000

    async def test_1000_jobs_of_one_bulk_are_one_write_and_one_command(
        self, proxy: Proxy, queue_name: str, stream: Stream, writes: list[int]
    ) -> None:
        async with Queue(queue_name, redis_url=proxy.url) as queue:
            await queue.add("send")
            before, commands = len(writes), len(proxy.requests)
            await queue.add_bulk({"name": f"send-{number % 10}", "data": number} for number in range(1000))
            assert len(writes) - before == 1
            assert len(proxy.requests) - commands == 1

    async def test_200_adds_of_one_turn_take_at_most_two_writes_and_two_commands(
        self, proxy: Proxy, queue_name: str, stream: Stream, writes: list[int]
    ) -> None:
        """The first may leave at once, so that a lone add need not wait for company."""
        async with Queue(queue_name, redis_url=proxy.url) as queue:
            await queue.add("send")
            before, commands = len(writes), len(proxy.requests)
            await asyncio.gather(*(queue.add("send", number) for number in range(200)))
            assert len(writes) - before <= 2
            assert len(proxy.requests) - commands <= 2

    async def test_100_tasks_that_add_all_the_time_share_commands(
        self, proxy: Proxy, queue_name: str, stream: Stream
    ) -> None:
        async with Queue(queue_name, redis_url=proxy.url) as queue:

            async def add() -> None:
                for number in range(20):
                    await queue.add("send", number)

            await asyncio.gather(*(add() for _ in range(100)))
            assert sent(proxy)["EVAL"] <= 100
        assert await stream.length() == 2000

    async def test_the_script_travels_once_a_connection(self, proxy: Proxy, queue_name: str, stream: Stream) -> None:
        async with Queue(queue_name, redis_url=proxy.url) as queue:
            for number in range(10):
                await queue.add_bulk([{"name": "send", "data": number}])
            assert proxy.count(REGISTRY.encode()) == 1  # its script travels once, too
            assert (proxy.count(b"$4\r\nEVAL\r\n"), proxy.count(b"$7\r\nEVALSHA\r\n")) == (2, 9)

    async def test_a_job_costs_one_command_and_a_connection_one_more(
        self, proxy: Proxy, queue_name: str, stream: Stream
    ) -> None:
        """The name of the queue goes to the registry behind the first add."""
        async with Queue(queue_name, redis_url=proxy.url) as queue:
            await queue.add("send")
            await eventually(lambda: proxy.count(REGISTRY.encode()) == 1)
            begun = len(proxy.requests)
            for _ in range(50):
                await queue.add("send")
            await queue.add_bulk([{"name": "send"}] * 500)
            assert len(proxy.requests) - begun == 51
            assert proxy.count(REGISTRY.encode()) == 1

    async def test_a_server_that_remembers_numbers_needs_no_script_for_a_lone_add(
        self, proxy: Proxy, queue_name: str, stream: Stream, server: RedisServer
    ) -> None:
        async with (
            Queue(queue_name, redis_url=proxy.url) as queue,
            Queue(queue_name, redis_url=proxy.url, max_stream_len=1000) as bounded,
            Queue(queue_name, redis_url=proxy.url, timeout_s=2 * REMEMBERED_S) as patient,
        ):
            for number in range(10):
                for one in (queue, bounded, patient):
                    await one.add("send", number)
        remembered = 9 if server.product == "Redis" and server.version >= (8, 6) else 0  # the first one had to connect
        assert proxy.count(b"$4\r\nIDMP\r\n") == remembered
        assert await stream.length() == 30

    async def test_a_queue_has_one_connection(self, proxy: Proxy, queue_name: str, stream: Stream) -> None:
        async with Queue(queue_name, redis_url=proxy.url) as queue:
            await asyncio.gather(*(queue.add("send", number) for number in range(100)))
            assert proxy.accepted == 1


def hellos(proxy: Proxy) -> Counter[bytes]:
    """How many connections have asked for each version of the protocol."""
    words = [request.split(b"\r\n") for request in proxy.requests]
    return Counter(each[4] for each in words if each[2] == b"HELLO")


async def add_10_000_jobs(queue_name: str, redis_url: str) -> None:
    async with Queue(queue_name, redis_url=redis_url) as queue:
        await queue.add_bulk({"name": "send", "data": number} for number in range(10_000))


async def do_nothing(job: Job) -> None: ...


class TestWork:
    async def test_jobs_that_finish_together_are_acked_by_few_commands_none_of_which_is_long(
        self, proxy: Proxy, redis_url: str, queue_name: str, stream: Stream, witness: Any
    ) -> None:
        gate, running = asyncio.Event(), 0

        async def handle(job: Job) -> None:
            nonlocal running
            running += 1
            await gate.wait()

        async def acks() -> int:
            """Commands called by scripts count too, so that the number is the same on every server."""
            stats = await witness.info("commandstats")
            return sum(stats[name]["calls"] for name in ("cmdstat_xackdel", "cmdstat_xack") if name in stats)

        async with Queue(queue_name, redis_url=redis_url) as queue:
            await queue.add_bulk({"name": "send", "data": number} for number in range(256))
        await acks()  # connects the witness: a worker that is alone on its server acks more at a time
        async with Worker(queue_name, handle, redis_url=proxy.url, concurrency=256):
            await eventually(lambda: running == 256)
            before = await acks()
            gate.set()
            await eventually(stream.is_settled)
            assert await acks() - before <= -(-256 // ACK_BATCH_WITH_EVENTS) + 1
            counts = re.findall(rb"XACKDEL\r\n(?:[^\r]*\r\n){4}\$3\r\nIDS\r\n[^\r]*\r\n(\d+)", b"".join(proxy.requests))
            assert all(int(count) <= ACK_BATCH_WITH_EVENTS for count in counts), counts

    async def test_10_000_instant_jobs_take_few_commands(
        self, proxy: Proxy, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        await add_10_000_jobs(queue_name, redis_url)
        async with Worker(queue_name, do_nothing, redis_url=proxy.url):
            await eventually(stream.is_settled, timeout=40)
            reads = -(-10_000 // READ_BATCH_WITH_EVENTS)
            acks_of_each = -(-READ_BATCH_WITH_EVENTS // ACK_BATCH_WITH_EVENTS)
            # An ack and its events are two commands.
            assert len(proxy.requests) < reads * (1 + 2 * acks_of_each) + 60, sent(proxy)

    async def test_10_000_instant_jobs_without_events_take_fewer_commands(
        self, proxy: Proxy, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        await add_10_000_jobs(queue_name, redis_url)
        async with Worker(queue_name, do_nothing, redis_url=proxy.url, events_enabled=False):
            await eventually(stream.is_settled, timeout=40)
            assert len(proxy.requests) < 300, sent(proxy)

    @pytest.mark.parametrize("is_alone", (True, False))
    async def test_a_worker_reads_large_batches_only_while_it_is_alone_on_its_server(
        self, queue_name: str, is_alone: bool
    ) -> None:
        left, done = 20_000, asyncio.Event()

        async def handle(job: Job) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        with RedisServer(tcp=True) as server:
            async with Queue(queue_name, redis_url=server.url) as queue, Proxy(server.url) as proxy:
                await queue.add_bulk({"name": "send", "data": number} for number in range(left))
                if is_alone:
                    await queue.close()
                async with Worker(queue_name, handle, redis_url=proxy.url):
                    await done.wait()
                counts = [int(count) for count in re.findall(rb"COUNT\r\n\$\d+\r\n(\d+)", b"".join(proxy.requests))]
                acks = [int(count) for count in re.findall(rb"IDS\r\n\$\d+\r\n(\d+)", b"".join(proxy.requests))]
        assert (max(counts) > READ_BATCH_WITH_EVENTS) is is_alone, counts
        assert not acks or (max(acks) > ACK_BATCH_WITH_EVENTS) is is_alone, acks  # older servers ack by a script

    async def test_entries_are_read_in_resp2_for_any_url(self, proxy: Proxy, queue_name: str) -> None:
        async def handle(job: Job) -> None:
            pass

        async with Worker(queue_name, handle, redis_url=proxy.url):
            await eventually(lambda: hellos(proxy) == {b"3": 2, b"2": 1})

    async def test_an_idle_worker_has_three_connections_and_is_quiet(
        self, proxy: Proxy, queue_name: str, witness: Any
    ) -> None:
        """P18. The seconds are the measurement, not a wait."""

        async def handle(job: Job) -> None:
            pass

        async with Worker(queue_name, handle, redis_url=proxy.url):
            await asyncio.sleep(0.5)  # what a start costs is not what idling costs
            before = len(proxy.requests)
            await asyncio.sleep(3)
            commands = len(proxy.requests) - before
            assert proxy.connections == 3
            assert len([each for each in await witness.client_list() if queue_name in each["name"]]) == 3
            assert commands <= 3 * 15, sent(proxy)

    async def test_workers_that_idle_beside_each_other_stay_as_quiet(self, proxy: Proxy, queue_name: str) -> None:
        async def handle(job: Job) -> None:
            pass

        workers = [Worker(queue_name, handle, redis_url=proxy.url) for _ in range(5)]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        await eventually(lambda: proxy.connections == 15)
        await asyncio.sleep(0.5)
        before = len(proxy.requests)
        await asyncio.sleep(1)
        commands = len(proxy.requests) - before
        await asyncio.gather(*(worker.close() for worker in workers))
        await asyncio.gather(*running)
        assert commands <= 5 * 15, sent(proxy)

    async def test_an_idle_worker_among_a_thousand_sends_about_one_command_a_second(
        self, proxy: Proxy, queue_name: str, witness: Any
    ) -> None:
        """The others are their leases, and one of them leads. The seconds are the measurement, not a wait."""
        keys = Keys(queue_name)

        async def handle(job: Job) -> None:
            pass

        far_ms = (time.time() + 600) * 1000
        await witness.zadd(keys.workers, {f"other-{number}": far_ms for number in range(999)})
        for lease in (keys.promoter_lease, keys.scheduler_lease):
            await witness.set(lease, "other-1", px=9000)
        async with Worker(queue_name, handle, redis_url=proxy.url):
            await asyncio.sleep(0.2)
            before = len(proxy.requests)
            await asyncio.sleep(2)
            assert len(proxy.requests) - before <= 4, sent(proxy)  # one renewal, and now and then a look
            assert proxy.count(keys.due_channel.encode()) == proxy.count(keys.repeat_channel.encode()) == 0
