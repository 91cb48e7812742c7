"""Dead letters of either kind are read and replayed by the other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pychasqui import Queue, Worker
from tests.interop.official import Official
from tests.interop.runs import Handler, HandlerRun
from tests.interop.wire import Wire, pack, timeless, unpack
from tests.support.waiting import eventually

ALWAYS = range(1000)
RETRY = [1, ["fixed", 5, None, None, 0]]


async def bury_there(official: Official, wire: Wire, count: int, **worker: Any) -> None:
    """The official worker runs the waiting jobs, in order, until `count` jobs are dead."""
    await official.work(concurrency=1, **worker)
    await eventually(lambda: has_letters(wire, count))
    await official.stop_working()


async def bury_here(redis_url: str, queue_name: str, wire: Wire, count: int, handler: Handler) -> None:
    async with Worker(queue_name, handler, redis_url=redis_url, concurrency=1):
        await eventually(lambda: has_letters(wire, count))


async def has_letters(wire: Wire, count: int) -> bool:
    return len(await wire.letters()) == count


async def add_doomed(queue: Queue) -> list[str]:
    """Three jobs with one run each: named, without a name, and with all options."""
    jobs = [
        await queue.add("wörk", {"n": 1}, attempts=1),
        await queue.add("", b"\0", attempts=1),
        await queue.add("all", [1.0], attempts=1, backoff={"kind": "fixed", "delay_ms": 5, "jitter_ms": 0}),
    ]
    return [job.id for job in jobs]


async def put_hopeless(wire: Wire) -> int:
    """Entries that no worker can run."""
    await wire.put(d=b"\xc1 not MessagePack", n=b"broken")
    await wire.put(d=b"")
    await wire.put(d=pack("too", b"\xc0"))
    await wire.put(d=pack("long", b"\xc0", 1, 0, None, None))
    await wire.put(d=pack(7, b"\xc0", 1, 0))
    await wire.put(d=pack("id", "text", 1, 0))
    await wire.put(d=pack("id", b"\xc0", -1, 0))
    await wire.put(d=pack("id", b"\xc0", 1.5, 0))
    await wire.put(d=pack("id", b"\xc0", 1, 2**32))
    await wire.put(d=pack("id", b"\xc0", 1, 0, [1]))
    await wire.put(d=pack("id", b"\xc0", 1, 0, [1, ["fixed", 5]]))
    await wire.put(d=pack("spent", b"\xc0", 1, 3, [3, None]), n=b"spent")
    await wire.put(d=pack("never", b"\xc0", 1, 0, [0, None]))
    await wire.put(other=b"x")
    await wire.put(d=bytes(1024 * 1024 + 1), n=b"large")
    return 15


class TestOursThere:
    async def test_the_official_package_sees_the_same_letters_as_our_queue(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        await add_doomed(queue)
        await bury_here(redis_url, queue_name, wire, 3, Handler(fails=ALWAYS))
        await queue.add("given up", 1)
        await bury_here(redis_url, queue_name, wire, 4, Handler(gives_up=True))
        count = 4 + await put_hopeless(wire)
        await bury_here(redis_url, queue_name, wire, count, Handler())
        seen = await official.peek_dlq(limit=100)
        assert len(seen) == count
        assert await queue.peek_dlq(limit=100) == seen
        assert await queue.peek_dlq(limit=2) == seen[:2]
        await wire.clear()

    async def test_letters_replayed_there_run_here_from_the_first_attempt(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        ids = await add_doomed(queue)
        await bury_here(redis_url, queue_name, wire, 3, Handler(fails=ALWAYS))
        assert await official.replay_dlq(limit=2) == 2
        assert await official.replay_dlq() == 1
        assert unpack((await wire.entries())[2][b"d"])[3:] == [0, RETRY]
        handler = Handler()
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(lambda: len(handler.runs) == 3)
        assert handler.runs == [
            HandlerRun(ids[0], "wörk", "{'n': 1}", 0),
            HandlerRun(ids[1], "", r"b'\x00'", 0),
            HandlerRun(ids[2], "all", "[1.0]", 0),
        ]


class TestTheirsHere:
    async def test_our_queue_sees_the_same_letters_as_the_official_package(
        self, official: Official, queue: Queue, wire: Wire
    ) -> None:
        await add_doomed(queue)
        await bury_there(official, wire, 3, fails=ALWAYS)
        await queue.add("given up", 1)
        await bury_there(official, wire, 4, gives_up=True)
        count = 4 + await put_hopeless(wire)
        await bury_there(official, wire, count)
        seen = await official.peek_dlq(limit=100)
        assert len(seen) == count
        assert await queue.peek_dlq(limit=100) == seen
        assert {job.reason async for job in queue.dlq.search()} == {letter["reason"] for letter in seen}
        await wire.clear()

    async def test_letters_replayed_here_run_there_from_the_first_attempt(
        self, official: Official, queue: Queue, wire: Wire
    ) -> None:
        ids = await add_doomed(queue)
        await bury_there(official, wire, 3, fails=ALWAYS)
        official.runs.clear()
        assert await queue.replay_dlq(limit=2) == 2
        assert await queue.replay_dlq() == 1
        assert unpack((await wire.entries())[2][b"d"])[3:] == [0, RETRY]
        await official.work(concurrency=1)
        await eventually(lambda: len(official.ended) == 6)
        assert official.runs == [
            HandlerRun(ids[0], "wörk", "{'n': 1}", 0),
            HandlerRun(ids[1], "", r"b'\x00'", 0),
            HandlerRun(ids[2], "all", "[1.0]", 0),
        ]

    async def test_letters_replayed_by_both_at_once_come_back_once(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        jobs = await queue.add_bulk({"name": "n", "data": n, "attempts": 1} for n in range(200))
        await bury_here(redis_url, queue_name, wire, 200, Handler(fails=ALWAYS))
        moved = 0
        while await wire.letters():
            moved += sum(await asyncio.gather(official.replay_dlq(limit=20), queue.replay_dlq(limit=30)))
        assert moved == 200
        assert await wire.waiting() == len(jobs)
        await wire.clear()


class TestTheSame:
    async def test_a_dead_job_of_both_kinds_has_the_same_letter(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        """In the fields that the official package knows, and in their order; the entry's id and time aside."""
        jobs = [
            {"name": "wörk", "data": {"n": 1}, "job_id": "one", "attempts": 2, "backoff": 1},
            {"name": "", "data": b"\0", "job_id": "two", "attempts": 1, "backoff": 1},
        ]
        known = [b"d", b"n", b"source_id", b"reason"]

        async def buried() -> list[list[tuple[bytes, bytes]]]:
            letters = [
                [(field, letter[field]) for field in letter if field in known] for letter in await wire.letters()
            ]
            await wire.clear()
            for letter in letters:
                letter[0] = (letter[0][0], timeless(letter[0][1]))
                letter[-2] = (letter[-2][0], b"")
            return sorted(letters)

        await queue.add_bulk(jobs)
        await bury_there(official, wire, 2, fails=ALWAYS)
        theirs = await buried()
        await queue.add_bulk(jobs)
        await bury_here(redis_url, queue_name, wire, 2, Handler(fails=ALWAYS))
        assert await buried() == theirs
        assert [field for field, _ in theirs[0]] == known

    async def test_entries_that_cannot_be_run_are_dead_for_the_same_reason_on_both_kinds(
        self, official: Official, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        count = await put_hopeless(wire)
        await bury_there(official, wire, count)
        theirs = [letter[b"reason"] for letter in await wire.letters()]
        await wire.clear()
        await put_hopeless(wire)
        await bury_here(redis_url, queue_name, wire, count, Handler())
        ours = [letter[b"reason"] for letter in await wire.letters()]
        assert ours == theirs
        await wire.clear()

    @pytest.mark.parametrize("payload", (b"\xc1", b"\x92\x01", b"\xc7\x01\x05x"), ids=("no type", "cut off", "ext"))
    async def test_data_that_cannot_be_read_is_dead_at_once_here(
        self, official: Official, redis_url: str, queue_name: str, wire: Wire, payload: bytes
    ) -> None:
        """The official package takes it for a failure of the handler and tries again, up to 25 times."""
        await wire.put(d=pack("unreadable", payload, 1, 0))
        await bury_here(redis_url, queue_name, wire, 1, Handler())
        [letter] = await wire.letters()
        assert letter[b"reason"] == b"decode_failed"
        assert unpack(letter[b"d"])[1] == payload
        [seen] = await official.peek_dlq()
        assert seen["reason"] == "decode_failed"
        assert seen["payload"] == letter[b"d"]
        await wire.clear()
