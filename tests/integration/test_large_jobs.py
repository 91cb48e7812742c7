"""Large jobs: neither the server nor the worker holds more of them at once than it has to."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from time import thread_time

import pytest
import redis.asyncio

from pychasqui import Job, Queue, Worker
from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.member import make_delayed_member
from pychasqui._wire.msgpack import encode_data
from tests.support.delayed import Delayed
from tests.support.gate import Gate
from tests.support.server import PROJECT
from tests.support.streams import Stream
from tests.support.waiting import eventually, first_below

KIB = 1024


@pytest.fixture
async def slowlog(witness: redis.asyncio.Redis) -> AsyncIterator[redis.asyncio.Redis]:
    """The witness, of a server that notes how long each command takes."""
    await witness.config_set("slowlog-log-slower-than", 0)
    await witness.config_set("slowlog-max-len", 10_000)
    yield witness
    await witness.config_set("slowlog-log-slower-than", 10_000)
    await witness.config_set("slowlog-max-len", 128)


async def longest_script_ms(slowlog: redis.asyncio.Redis) -> float:
    """How long the longest script since the last SLOWLOG RESET has held the server."""
    entries = await slowlog.slowlog_get(-1)
    return max((entry["duration"] for entry in entries if entry["command"].startswith(b"EVAL")), default=0) / 1000


class TestTheServer:
    async def test_many_large_delayed_jobs_that_are_due_at_once_do_not_hold_it_up(
        self, queue: Queue, delayed: Delayed, redis_url: str, slowlog: redis.asyncio.Redis
    ) -> None:
        """A single call for all of them would take most of a second."""

        async def longest_script_s() -> float:
            ran = []

            async def handler(job: Job) -> None:
                ran.append(job.id)

            for number in range(600):
                payload = encode_data("x" * 100 * KIB)
                await delayed.put(make_delayed_member("large", encode_envelope(f"{number:026d}", payload, 1, 0, None)))
            await slowlog.slowlog_reset()
            async with Worker(queue.name, handler, redis_url=redis_url):
                await eventually(lambda: len(ran) == 600, timeout=30)
            assert len(set(ran)) == 600
            return await longest_script_ms(slowlog) / 1000

        await first_below(0.15, longest_script_s, within_s=20)


def job(number: int, data: object) -> bytes:
    return encode_envelope(f"{number:026d}", encode_data(data), 1, 0, None)


def entry(number: int, data: object) -> dict[str, bytes]:
    return {"d": job(number, data), "n": b"large"}


class TestTheWorker:
    async def test_the_memory_of_a_worker_is_bounded_when_large_jobs_follow_small_ones(
        self, redis_url: str, queue_name: str, stream: Stream, witness: redis.asyncio.Redis
    ) -> None:
        """Once large jobs appear, the worker reads by bytes; entries on their way are given up and found again."""
        key = f"{{chasqui:{queue_name}}}:stream"
        async with witness.pipeline(transaction=False) as pipeline:
            for number in range(6000):
                pipeline.xadd(key, entry(number, number))
            await pipeline.execute()
        for number in range(6000, 6200):
            await witness.xadd(key, entry(number, "x" * (1024 * KIB - 100)))
        command = (sys.executable, "-m", "tests.support.large_worker", redis_url, queue_name, "6200")
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=PROJECT)
        said, _ = await process.communicate()
        runs, ids, before, peak = map(int, said.split())
        assert (runs, ids) == (6200, 6200)
        assert peak - before < 110, "MiB; 200 MiB of jobs would take three times that if all were read"
        assert await stream.is_settled()

    async def test_jobs_of_100_mb_take_none_of_its_memory(
        self, redis_url: str, queue_name: str, stream: Stream, delayed: Delayed, witness: redis.asyncio.Redis
    ) -> None:
        """Somebody else has added them, one to the stream and one delayed: their size is read, and they are buried."""
        key, huge = f"{{chasqui:{queue_name}}}:stream", b"x" * 100_000_000
        await witness.xadd(key, {"d": huge})
        await witness.xadd(key, entry(1, 1))
        await delayed.put(make_delayed_member("huge", huge))
        await delayed.put(make_delayed_member("small", job(2, 2)), 2)  # due later, so that it runs behind the huge one
        command = (sys.executable, "-m", "tests.support.large_worker", redis_url, queue_name, "2")
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=PROJECT)
        said, _ = await process.communicate()
        runs, ids, before, peak = map(int, said.split())
        assert (runs, ids) == (2, 2)
        assert peak - before < 40, "MiB"
        assert await stream.is_settled()
        assert await witness.xlen(f"{{chasqui:{queue_name}}}:dlq") == 2
        await witness.delete(f"{{chasqui:{queue_name}}}:dlq")

    async def test_jobs_of_every_size_run_once(
        self, redis_url: str, queue_name: str, stream: Stream, witness: redis.asyncio.Redis
    ) -> None:
        sizes = [10, 300, 5 * KIB, 40 * KIB, 200 * KIB, 900 * KIB] * 20
        for number, size in enumerate(sizes):
            await witness.xadd(f"{{chasqui:{queue_name}}}:stream", entry(number, [number, "x" * size]))
        ran: list[tuple[int, int]] = []

        async def handle(job: Job) -> None:
            ran.append((job.data[0], len(job.data[1])))

        async with Worker(queue_name, handle, redis_url=redis_url, concurrency=1, prefetch_bytes=1024 * KIB):
            await eventually(stream.is_settled, timeout=20)
        assert ran == list(enumerate(sizes))

    async def test_a_batch_of_hostile_jobs_does_not_hold_its_loop(
        self, redis_url: str, queue_name: str, stream: Stream, witness: redis.asyncio.Redis
    ) -> None:
        """Each takes 0.1 s or more to look through; in one go that would be seconds."""
        unit = b"\x01\xcc\xff\xa1a\xa3abc\xcd\xff\xff"
        payload = b"\xdd" + (80_000 * 5).to_bytes(4, "big") + unit * 80_000
        for number in range(15):
            envelope = encode_envelope(f"{number:026d}", payload, 1, 0, None)
            await witness.xadd(f"{{chasqui:{queue_name}}}:stream", {"d": envelope})
        ran: list[int] = []

        async def handle(job: Job) -> None:
            ran.append(len(job.data))

        async with Worker(queue_name, handle, redis_url=redis_url):
            longest, last = 0.0, thread_time()  # of the processor: whatever else the machine is busy with
            while len(ran) < 15:
                await asyncio.sleep(0)
                now = thread_time()
                longest, last = max(longest, now - last), now
        assert ran == [400_000] * 15
        assert longest < 0.05

    async def test_an_entry_that_no_worker_would_take_is_buried_with_its_bytes(
        self,
        queue: Queue,
        redis_url: str,
        stream: Stream,
        witness: redis.asyncio.Redis,
    ) -> None:
        ran: list[str] = []

        async def handle(job: Job) -> None:
            ran.append(job.name)

        key = f"{{chasqui:{queue.name}}}:stream"
        huge = b"x" * 40 * 1024 * KIB
        async with Worker(queue.name, handle, redis_url=redis_url):
            await queue.add("before")
            await eventually(lambda: ran == ["before"])
            await witness.xadd(key, {"d": huge, "n": b"huge"})
            await queue.add("behind")
            await eventually(lambda: ran == ["before", "behind"], timeout=20)
            await eventually(stream.is_settled, timeout=20)
        ((_, letter),) = await witness.xrange(f"{{chasqui:{queue.name}}}:dlq")
        assert (letter[b"d"] == huge, letter[b"n"], letter[b"reason"]) == (True, b"huge", b"oversize_payload")
        await witness.delete(f"{{chasqui:{queue.name}}}:dlq")

    async def test_the_next_read_is_on_its_way_while_what_the_first_brought_runs(
        self, queue: Queue, redis_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first is by bytes, because nothing is known of the jobs yet."""
        monkeypatch.setattr("pychasqui._worker.reader.STALE_S", 60.0)  # nothing else wakes the reader
        gate = Gate()
        await queue.add("first", 1)
        async with Worker(queue.name, gate, redis_url=redis_url, concurrency=2):
            await eventually(lambda: gate.data == [1])
            await queue.add("second", 2)
            await eventually(lambda: gate.data == [1, 2])
            gate.opened.set()
