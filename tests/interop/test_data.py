"""Jobs added by one kind run on the other: names, data of every type and size, and the same bytes on the wire."""

from __future__ import annotations

import math
import random
from time import monotonic
from typing import Any

import pytest

from pychasqui import PayloadTooLarge, Queue, UnsupportedData, Worker
from tests.interop.official import Official, OfficialError, as_written
from tests.interop.runs import Handler, HandlerRun
from tests.interop.wire import Wire, nameless, pack, timeless, unpack
from tests.support.waiting import eventually

MIB = 1024 * 1024
NOW_MS = 2**40  # takes as many bytes as the time of any day that matters

DATA: list[Any] = [
    None,
    *(True, False),
    *(0, 1, -1, 127, 128, 255, 256, -32, -33, -128, -129, 2**16, 2**32, 2**53 + 1, 2**63, 2**64 - 1, -(2**63)),
    *(0.0, -0.0, 1.0, 0.1, 2.5, -1e300, 5e-324, math.inf, -math.inf, math.nan),
    *("", "text", "wörk", "日本語", "🦙🦙", "nul\0inside", "\r\n", "a" * 31, "b" * 32, "c" * 300, "d" * 70_000),
    *(b"", b"bytes", bytes(range(256)), b"\xff\xfe no text", b"e" * 70_000),
    *([], {}, [[]], [{}], {"": {}}, [None, [True, [1, [2.5, ["deep", [b"deeper"]]]]]]),
    {"to": "ada@example.org", "cc": [], "size": 1.0, "raw": b"\0", "nested": {"ü": {"list": [1, 2.0, None]}}},
    list(range(1000)),
    {f"key {number}": number for number in range(100)},
]
NAMES = ["", "mail", "wörk", "日本語", "🦙", "two words", "line\nbreak", "nul\0inside", "0", "x" * 256, "ü" * 128]


class TestTheyAddWeRun:
    async def test_data_of_every_type_arrives_as_it_was(
        self, official: Official, redis_url: str, queue_name: str
    ) -> None:
        ids = await official.add_bulk([{"name": "data", "data": data} for data in DATA])
        handler = Handler()
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(lambda: len(handler.runs) == len(DATA))
        assert by_id(handler.runs, ids) == [
            HandlerRun(job_id, "data", repr(data), 0) for job_id, data in zip(ids, DATA, strict=True)
        ]

    async def test_names_and_times_arrive_as_they_were(
        self, official: Official, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        ids = [await official.add(name, name) for name in NAMES]
        ids += await official.add_bulk([{"name": name, "data": name} for name in NAMES])
        stored = {fields[0]: fields[2] for fields in (unpack(entry[b"d"]) for entry in await wire.entries())}
        handler = Handler()
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(lambda: len(handler.runs) == len(ids))
        assert [(run.name, run.data) for run in by_id(handler.runs, ids)] == [(name, repr(name)) for name in NAMES] * 2
        assert {run.id: run.created_at_ms for run in handler.runs} == stored

    async def test_keys_that_are_ints_stay_ints(self, official: Official, redis_url: str, queue_name: str) -> None:
        data = {1: "one", -7: {2**40: []}, "1": b"text"}
        job_id = await official.add("keys", data)
        handler = Handler()
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(lambda: handler.runs)
        assert handler.runs == [HandlerRun(job_id, "keys", repr(data), 0)]

    async def test_an_envelope_of_exactly_1_mib_arrives(
        self, official: Official, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        data = filling_envelope(MIB)
        for job_id in ("big-1", "big-2"):
            await official.add("big", data, f"job_id={job_id!r}")
        assert [len(entry[b"d"]) for entry in await wire.entries()] == [MIB, MIB]
        handler = Handler()
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(lambda: len(handler.runs) == 2)
        assert handler.runs == [HandlerRun("big-1", "big", repr(data), 0), HandlerRun("big-2", "big", repr(data), 0)]

    async def test_a_delayed_job_arrives_when_it_is_due(
        self, official: Official, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        await official.add("later", {"n": 1}, "job_id='later-1', delay_ms=2000")
        await official.add("", {"n": 2}, "job_id='later-2', delay_ms=1000")
        due_at = monotonic() + (await wire.due_in_ms())["later-1"] / 1000
        handler = Handler()
        async with Worker(queue_name, handler, redis_url=redis_url):
            early_s = due_at - monotonic() - 0.1
            with pytest.raises(AssertionError, match="not true within"):
                await eventually(lambda: any(run.id == "later-1" for run in handler.runs), timeout=early_s)
            await eventually(lambda: len(handler.runs) == 2)
        assert handler.runs == [
            HandlerRun("later-2", "", repr({"n": 2}), 0),
            HandlerRun("later-1", "later", repr({"n": 1}), 0),
        ]


class TestWeAddTheyRun:
    async def test_data_of_every_type_arrives_as_it_was(self, official: Official, queue: Queue) -> None:
        ids = [job.id for job in await queue.add_bulk({"name": "data", "data": data} for data in DATA)]
        await official.work()
        await eventually(lambda: len(official.runs) == len(DATA))
        assert by_id(official.runs, ids) == [
            HandlerRun(job_id, "data", repr(data), 0) for job_id, data in zip(ids, DATA, strict=True)
        ]

    async def test_names_and_times_arrive_as_they_were(self, official: Official, queue: Queue) -> None:
        jobs = [await queue.add(name, name) for name in NAMES]
        jobs += await queue.add_bulk({"name": name, "data": name} for name in NAMES)
        await official.work()
        await eventually(lambda: len(official.runs) == len(jobs))
        runs = by_id(official.runs, [job.id for job in jobs])
        assert [(run.name, run.data) for run in runs] == [(name, repr(name)) for name in NAMES] * 2
        assert [run.created_at_ms for run in runs] == [job.created_at_ms for job in jobs]

    async def test_an_envelope_of_exactly_1_mib_arrives(self, official: Official, queue: Queue, wire: Wire) -> None:
        data = filling_envelope(MIB)
        await queue.add_bulk({"name": "big", "data": data, "job_id": job_id} for job_id in ("big-1", "big-2"))
        assert [len(entry[b"d"]) for entry in await wire.entries()] == [MIB, MIB]
        await official.work(concurrency=1)
        await eventually(lambda: len(official.runs) == 2)
        assert official.runs == [HandlerRun("big-1", "big", repr(data), 0), HandlerRun("big-2", "big", repr(data), 0)]

    async def test_the_largest_job_that_we_take_is_not_too_large_for_them(
        self, official: Official, queue: Queue, wire: Wire
    ) -> None:
        size = MIB
        while size:
            try:
                await queue.add("large", b"x" * size)
                break
            except PayloadTooLarge:
                size -= 1
        await official.work()
        try:
            await eventually(lambda: official.runs)
        finally:
            await wire.clear()

    async def test_keys_that_are_ints_fail_there_and_run_here(
        self, official: Official, queue: Queue, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        """The official package writes such keys but does not read them: to it the job has failed."""
        job = await queue.add("keys", {1: "one"}, backoff=60_000)
        await official.work()
        await eventually(wire.members)
        await official.stop_working()
        assert official.runs == []
        await wire.make_due()
        handler = Handler()
        async with Worker(queue_name, handler, redis_url=redis_url):
            await eventually(lambda: handler.runs)
        assert handler.runs == [HandlerRun(job.id, "keys", "{1: 'one'}", 1)]


OPTIONS = [
    "",
    "attempts=1",
    "attempts=4",
    "attempts=2**32 - 1",
    "backoff=0",
    "backoff=500",
    "attempts=2, backoff=70_000",
    "backoff=BackoffSpec.fixed(250)",
    "attempts=300, backoff=BackoffSpec.fixed(2**40, jitter_ms=0)",
    "backoff=BackoffSpec.exponential(100)",
    "backoff=BackoffSpec.exponential(100, multiplier=1.5)",
    "backoff=BackoffSpec.exponential(100, multiplier=3)",
    "attempts=3, backoff=BackoffSpec.exponential(100, multiplier=2.0, max_ms=10000, jitter_ms=25)",
    "backoff={'kind': 'fixed', 'delay_ms': 5, 'max_delay_ms': 7, 'multiplier': 1.0, 'jitter_ms': 300}",
    "backoff={'kind': 'exponential', 'delay_ms': 5}",
]


class TestBytes:
    async def test_an_entry_of_both_kinds_has_the_same_bytes(
        self, official: Official, queue: Queue, wire: Wire
    ) -> None:
        """The time at which it was made is left out."""
        data = {"to": "ada", "list": [1, 2.5, None, True, b"\0"]}
        for number, options in enumerate(OPTIONS):
            for name in ("", "wörk"):
                job_id = f"job-{number}-{len(name)}"
                await official.add(name, data, f"job_id={job_id!r}, {options}")
                await queue.add(name, data, job_id=job_id, **as_written(options))
        entries = [
            [(field, timeless(value) if field == b"d" else value) for field, value in entry.items()]
            for entry in await wire.entries()
        ]
        theirs, ours = entries[::2], entries[1::2]
        assert len(ours) == 2 * len(OPTIONS)
        assert ours == theirs
        await wire.clear()

    async def test_a_thousand_random_jobs_of_both_kinds_have_the_same_bytes(
        self, official: Official, queue: Queue, wire: Wire
    ) -> None:
        """The time and the ids, which each kind makes up, are left out."""
        chance = random.Random(1300)
        jobs = [{"name": text(chance), "data": value(chance, 5)} for _ in range(1000)]
        await official.add_bulk(jobs)
        await queue.add_bulk(jobs)
        entries = [(nameless(timeless(entry[b"d"])), entry.get(b"n")) for entry in await wire.entries()]
        assert len(entries) == 2000
        for job, theirs, ours in zip(jobs, entries[:1000], entries[1000:], strict=True):
            assert ours == theirs, job
        await wire.clear()

    @pytest.mark.parametrize("data", (2**64, -(2**63) - 1, {"set": {1}}, [object], 1j), ids=repr)
    async def test_data_that_one_kind_refuses_the_other_kind_refuses_too(
        self, official: Official, queue: Queue, data: Any
    ) -> None:
        with pytest.raises(UnsupportedData):
            await queue.add("refused", data)
        if data != [object]:  # a class has no source to send
            with pytest.raises(OfficialError, match=r"OverflowError|TypeError"):
                await official.add("refused", data)


@pytest.mark.parametrize(
    "data",
    (b"\xc7\x03\x05abc", b"\x91" * 600 + b"\xc0"),
    ids=("an ext type", "600 levels"),
)
async def test_data_that_only_official_workers_read_is_dead_here_with_its_bytes(
    official: Official, queue: Queue, redis_url: str, queue_name: str, wire: Wire, data: bytes
) -> None:
    """Any client of the stream can write it; the official Python package writes no ext types itself."""
    envelope = pack("odd-1", data, NOW_MS, 0)
    await wire.put(d=envelope)
    await official.work()
    await eventually(lambda: [run.id for run in official.runs] == ["odd-1"])
    await official.stop_working()
    handler = Handler()
    await wire.put(d=envelope)
    async with Worker(queue_name, handler, redis_url=redis_url):

        async def is_buried() -> bool:
            return len(await wire.letters()) == 1

        await eventually(is_buried)
    assert handler.runs == []
    assert [(letter[b"reason"], letter[b"d"]) for letter in await wire.letters()] == [(b"decode_failed", envelope)]
    await wire.clear()


def by_id(runs: list[HandlerRun], ids: list[str]) -> list[HandlerRun]:
    """In the order in which they were added; handlers that run side by side may report in another."""
    found = {run.id: run for run in runs}
    assert len(found) == len(runs), "a job has run twice"
    return [found[job_id] for job_id in ids]


def filling_envelope(size: int) -> bytes:
    """Data that makes the envelope of a job with a five-letter id exactly that long."""
    head = len(b"\xc6") + 4  # of bytes, in the data and again in the envelope
    return b"x" * (size - head - len(pack("big-1", bytes(size), NOW_MS, 0)) + size)


def text(chance: random.Random) -> str:
    letters = "aZ09 äß\0\n日本🦙\u202e\x7f"
    return "".join(chance.choice(letters) for _ in range(chance.choice((0, 1, 5, 15, 16, 31, 32, 40))))


def value(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(9 if depth else 7)
    if kind == 0:
        return chance.choice((None, True, False))
    if kind in (1, 2):
        return chance.choice((1, -1)) * (2 ** chance.randrange(63) + chance.randrange(-1, 2))
    if kind == 3:
        return chance.choice((chance.random(), chance.gauss(0, 1e200), float(chance.randrange(10)), math.inf, math.nan))
    if kind in (4, 5):
        return text(chance) * chance.choice((1, 1, 10))
    if kind == 6:
        return chance.randbytes(chance.choice((0, 1, 31, 32, 255, 256)))
    size = chance.choice((0, 1, 3, 15, 16))
    if kind == 7:
        return [value(chance, depth - 1) for _ in range(size)]
    return {text(chance) or chance.randrange(1000): value(chance, depth - 1) for _ in range(size)}
