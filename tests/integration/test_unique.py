"""One job per id: P10.

same id twice, three times, at once     TestOneJob
delayed and immediate, mixed            TestOneJob.test_an_id_has_one_job_with_and_without_a_delay
distinct ids, bulks, empty              TestBulk
until it is done, dead or cancelled     TestEnds
a window of time                        TestWindow
replace and postpone                    TestReplacing
many processes                          TestProcesses
the official package                    tests/interop/test_delayed.py
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from pychasqui import InvalidArgument, Job, Queue, QueueFull, RetryPolicy, UnrecoverableError, Worker
from tests.support.gate import Gate
from tests.support.programs import start_program
from tests.support.streams import Stream
from tests.support.waiting import eventually

LATER_MS = 60_000
ULID = "01M7F91ME6X32YC9GXRB8FSV7H"  # a chosen id may look like a generated one


pytestmark = pytest.mark.usefixtures("stream", "delayed")  # so that what is left is removed


@pytest.fixture
async def other(redis_url: str, queue_name: str) -> AsyncIterator[Queue]:
    """Another producer, as in another process."""
    async with Queue(queue_name, redis_url=redis_url) as queue:
        yield queue


async def stored(stream: Stream, witness: Any) -> int:
    """How many jobs there are, waiting or delayed."""
    return await stream.length() + int(await witness.zcard(stream.key.replace(":stream", ":delayed")))


class TestOneJob:
    @pytest.mark.parametrize("job_id", ("order-17", ULID, "ü" * 13, "x" * 26, "a:b}c{d", "y" * 256, "z" * 4096))
    @pytest.mark.parametrize("delays", ((0, 0, 0), (LATER_MS, LATER_MS, 5), (0, LATER_MS, 0), (LATER_MS, 0, LATER_MS)))
    async def test_an_id_has_one_job_with_and_without_a_delay(
        self, queue: Queue, other: Queue, stream: Stream, witness: Any, job_id: str, delays: tuple[int, ...]
    ) -> None:
        answers = [
            await (queue if number != 1 else other).add("send", number, job_id=job_id, delay_ms=delay_ms)
            for number, delay_ms in enumerate(delays)
        ]
        assert [(job.id, job.is_new, job.has_replaced) for job in answers] == [
            (job_id, True, False),
            (job_id, False, False),
            (job_id, False, False),
        ]
        assert await stored(stream, witness) == 1

    async def test_two_producers_that_add_at_once_add_one_job(
        self, queue: Queue, other: Queue, stream: Stream, witness: Any
    ) -> None:
        for number in range(50):
            jobs = await asyncio.gather(
                *(
                    each.add("send", job_id=f"job-{number}", delay_ms=delay_ms)
                    for each in (queue, other)
                    for delay_ms in (0, LATER_MS)
                )
            )
            assert [job.is_new for job in jobs].count(True) == 1
        assert await stored(stream, witness) == 50

    async def test_different_ids_do_not_know_each_other(self, queue: Queue, stream: Stream, witness: Any) -> None:
        jobs = [await queue.add("send", job_id=f"job-{n}", delay_ms=n % 2 * LATER_MS) for n in range(20)]
        assert all(job.is_new for job in jobs)
        assert await stored(stream, witness) == 20

    async def test_a_delayed_job_of_one_id_runs_once(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        gate = Gate()
        gate.opened.set()
        for delay_ms in (100, 100, 50):
            await queue.add("send", delay_ms, job_id="one", delay_ms=delay_ms)
        async with make_worker(gate):
            await eventually(lambda: gate.jobs)
            await eventually(stream.is_settled)
        assert gate.data == [100]

    async def test_a_uniqueness_key_outlives_the_delay(self, queue: Queue, stream: Stream, witness: Any) -> None:
        await queue.add("send", job_id="one", delay_ms=LATER_MS)
        for key in ("unique:one", "dlid:one", "didx:one"):
            assert await witness.pttl(f"{{chasqui:{queue.name}}}:{key}") > LATER_MS

    async def test_an_id_must_be_given_to_be_unique(self, queue: Queue, witness: Any) -> None:
        with pytest.raises(InvalidArgument, match="job_id"):
            await queue.add_unique("send", job_id=None)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="job_id"):
            await queue.add_unique("send", job_id=" ")
        with pytest.raises(InvalidArgument, match="unique_for and if_exists"):
            await queue.add("send", unique_for=5)
        assert await witness.dbsize() == 0
        assert (await queue.add_unique("send", 1, job_id="one", delay_ms=LATER_MS)).is_new
        assert not (await queue.add_unique("send", 1, job_id="one")).is_new

    async def test_jobs_without_an_id_of_their_own_leave_no_uniqueness_key(self, queue: Queue, stream: Stream) -> None:
        await queue.add("send")
        job = await queue.add("send", delay_ms=LATER_MS)
        assert await stream.found_by_id() == [f"didx:{job.id}"]


class TestBulk:
    async def test_a_bulk_says_which_of_its_jobs_are_new(self, queue: Queue, stream: Stream, witness: Any) -> None:
        first = await queue.add_bulk({"name": "a", "job_id": f"id-{n}", "delay_ms": LATER_MS} for n in (1, 2, 3))
        second = await queue.add_bulk({"name": "b", "job_id": f"id-{n}"} for n in (2, 3, 4))
        assert [job.is_new for job in first] == [True, True, True]
        assert [job.is_new for job in second] == [False, False, True]
        assert await stored(stream, witness) == 4

    async def test_a_bulk_may_name_an_id_twice(self, queue: Queue, stream: Stream, witness: Any) -> None:
        jobs = await queue.add_bulk(
            [
                {"name": "a", "data": 1, "job_id": "one", "delay_ms": LATER_MS},
                {"name": "plain", "data": 2},
                {"name": "a", "data": 3, "job_id": "one"},
                {"name": "a", "data": 4, "job_id": "one", "if_exists": "replace"},
                {"name": "plain", "data": 5, "delay_ms": LATER_MS},
            ]
        )
        assert [job.is_new for job in jobs] == [True, True, False, False, True]
        assert [job.has_replaced for job in jobs] == [False, False, False, True, False]
        assert await stored(stream, witness) == 3

    async def test_a_bulk_of_thousands_adds_each_id_once(self, queue: Queue, stream: Stream, witness: Any) -> None:
        def bulk() -> list[dict[str, Any]]:
            return [{"name": "a", "data": n, "job_id": f"id-{n % 2000}", "delay_ms": n % 2} for n in range(4000)]

        assert [job.is_new for job in await queue.add_bulk(bulk())] == [True] * 2000 + [False] * 2000
        assert not any(job.is_new for job in await queue.add_bulk(bulk()))
        assert await stored(stream, witness) == 2000

    async def test_a_full_queue_leaves_no_uniqueness_key(self, redis_url: str, queue_name: str, stream: Stream) -> None:
        async with Queue(queue_name, redis_url=redis_url, max_stream_len=1) as queue:
            await queue.add("send", job_id="one")
            assert not (await queue.add("send", job_id="one")).is_new
            with pytest.raises(QueueFull):
                await queue.add("send", job_id="two")
            assert (await queue.add("send", job_id="three", delay_ms=LATER_MS)).is_new
            await stream.clear()
            assert (await queue.add("send", job_id="two")).is_new


class TestEnds:
    @pytest.mark.parametrize("job_id", ("order-17", ULID))
    @pytest.mark.parametrize("delay_ms", (0, 30))
    @pytest.mark.parametrize("dies", (False, True))
    async def test_a_running_job_keeps_its_id_and_frees_it_at_its_end(
        self,
        queue: Queue,
        other: Queue,
        make_worker: Callable[..., Worker],
        stream: Stream,
        job_id: str,
        delay_ms: int,
        dies: bool,
    ) -> None:
        gate = Gate(UnrecoverableError("dies") if dies else None)
        async with make_worker(gate):
            await queue.add("send", 1, job_id=job_id, delay_ms=delay_ms)
            await eventually(lambda: gate.data == [1])
            assert not (await other.add("send", 2, job_id=job_id)).is_new
            assert not (await other.add("send", 2, job_id=job_id, if_exists="replace")).is_new
            gate.opened.set()
            await eventually(stream.is_settled)
            assert await stream.found_by_id() == []
            assert (await other.add("send", 3, job_id=job_id, delay_ms=delay_ms)).is_new
            await eventually(lambda: gate.data == [1, 3])
            await eventually(stream.is_settled)
            assert await stream.found_by_id() == []
        await queue.dlq.purge()

    @pytest.mark.parametrize("job_id", ("order-17", ULID))
    async def test_a_job_keeps_its_id_between_two_attempts(
        self, queue: Queue, other: Queue, make_worker: Callable[..., Worker], stream: Stream, job_id: str
    ) -> None:
        tries: list[int] = []

        async def fail(job: Job) -> None:
            tries.append(job.attempt)
            if job.attempt < 2:
                raise RuntimeError("again")

        async with make_worker(fail, retry=RetryPolicy(initial_ms=150, max_ms=150, jitter_ms=0)):
            await queue.add("send", job_id=job_id)
            for attempt in range(2):
                await eventually(partial(tries.count, attempt))
                await eventually(stream.is_settled)
                assert not (await other.add("send", job_id=job_id)).is_new
            await eventually(lambda: len(tries) == 3)
            await eventually(stream.is_settled)
            assert await stream.found_by_id() == []
            assert (await other.add("send", job_id=job_id)).is_new

    async def test_a_cancelled_job_frees_its_id(self, queue: Queue, stream: Stream, witness: Any) -> None:
        for number in range(3):
            assert (await queue.add("send", number, job_id="one", delay_ms=LATER_MS)).is_new
            assert await queue.cancel_delayed("one")
            assert await stream.found_by_id() == []
        assert await stored(stream, witness) == 0

    async def test_a_lost_stream_does_not_keep_an_id_for_ever(self, queue: Queue, stream: Stream) -> None:
        """The process that ran or deleted the job knew nothing of uniqueness keys."""
        await queue.add("send", job_id="one")
        await stream.clear()
        assert (await queue.add("send", job_id="one")).is_new


class TestWindow:
    async def test_the_window_lasts_past_the_end_of_the_job(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        gate = Gate()
        gate.opened.set()
        async with make_worker(gate):
            before = time.monotonic()
            await queue.add("send", 1, job_id="one", unique_for=600)
            await eventually(lambda: gate.data == [1])
            await eventually(stream.is_settled)
            assert not (await queue.add("send", 2, job_id="one")).is_new
            assert not (await queue.add("send", 2, job_id="one", delay_ms=5, unique_for=timedelta(hours=1))).is_new

            async def is_free() -> bool:
                return (await queue.add("send", 3, job_id="one")).is_new

            await eventually(is_free)
            assert time.monotonic() - before >= 0.6
            await eventually(lambda: gate.data == [1, 3])

    async def test_the_window_ends_also_if_the_job_still_waits(
        self, queue: Queue, stream: Stream, witness: Any
    ) -> None:
        await queue.add("send", 1, job_id="one", unique_for=100)
        await queue.add("send", 1, job_id="two", unique_for=timedelta(milliseconds=100), delay_ms=LATER_MS)

        async def gone() -> bool:
            return not [key for key in await stream.keys() if key.startswith(("unique:", "dlid:"))]

        await eventually(gone)
        assert (await queue.add("send", 2, job_id="one")).is_new
        assert (await queue.add("send", 2, job_id="two", delay_ms=LATER_MS)).is_new
        assert await stored(stream, witness) == 4

    async def test_the_end_of_an_older_job_does_not_let_a_third_in(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        gate, second = Gate(), Gate()
        async with make_worker(gate):
            await queue.add("send", 1, job_id="one", unique_for=50)
            await eventually(lambda: gate.data == [1])

            async def is_free() -> bool:
                return (await queue.add("send", 2, job_id="one")).is_new

            await eventually(is_free)
            await eventually(lambda: gate.data == [1, 2])
            gate.opened.set()
            await eventually(stream.is_settled)
        assert second.data == []
        assert await stream.found_by_id() == []

    async def test_the_window_stays_the_same_while_the_job_is_retried(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, witness: Any
    ) -> None:
        tries: list[int] = []

        async def fail_once(job: Job) -> None:
            tries.append(job.attempt)
            if job.attempt == 0:
                raise RuntimeError("again")

        async with make_worker(fail_once):
            await queue.add("send", job_id="one", unique_for=LATER_MS, backoff=20)
            await eventually(lambda: tries == [0, 1])
            await eventually(stream.is_settled)
        assert 0 < await witness.pttl(f"{{chasqui:{queue.name}}}:unique:one") <= LATER_MS
        assert not (await queue.add("send", job_id="one")).is_new

    async def test_cancelling_ends_the_window(self, queue: Queue) -> None:
        await queue.add("send", job_id="one", unique_for=LATER_MS, delay_ms=LATER_MS)
        assert await queue.cancel_delayed("one")
        assert (await queue.add("send", job_id="one", delay_ms=LATER_MS)).is_new
        assert await queue.cancel_delayed("one")


class TestReplacing:
    async def due_in_ms(self, witness: Any, queue: Queue) -> float:
        ((_, score),) = await witness.zrange(f"{{chasqui:{queue.name}}}:delayed", 0, -1, withscores=True)
        return float(score) - time.time() * 1000

    async def test_replace_keeps_the_time_and_takes_the_last_data(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, witness: Any
    ) -> None:
        gate = Gate()
        gate.opened.set()
        await queue.add("draft", 1, job_id="one", delay_ms=30_000)
        job = await queue.add("final", 2, job_id="one", delay_ms=LATER_MS, if_exists="replace")
        assert (job.is_new, job.has_replaced) == (False, True)
        assert 25_000 < await self.due_in_ms(witness, queue) <= 30_001
        assert (await queue.add("final", 3, job_id="one", if_exists="replace")).has_replaced
        assert await stored(stream, witness) == 1
        assert await queue.run_now("one")
        async with make_worker(gate):
            await eventually(lambda: gate.jobs)
            await eventually(stream.is_settled)
        assert [(job.name, job.data) for job in gate.jobs] == [("final", 3)]
        assert await stream.found_by_id() == []

    async def test_postpone_moves_the_due_time_too(self, queue: Queue, stream: Stream, witness: Any) -> None:
        await queue.add("draft", 1, job_id="one", delay_ms=10_000)
        assert (await queue.add("draft", 2, job_id="one", delay_ms=30_000, if_exists="postpone")).has_replaced
        assert 25_000 < await self.due_in_ms(witness, queue) <= 30_001
        assert (await queue.add("draft", 3, job_id="one", delay_ms=5_000, if_exists="postpone")).has_replaced
        assert 0 < await self.due_in_ms(witness, queue) <= 5_001
        assert (await queue.add("draft", 4, job_id="one", if_exists="postpone")).has_replaced
        assert [entry.data for entry in await stream.entries()] == [4]
        assert await stored(stream, witness) == 1

    async def test_a_job_that_waits_in_the_stream_is_replaced_too(
        self, queue: Queue, stream: Stream, witness: Any
    ) -> None:
        await queue.add("draft", 1, job_id="one")
        assert (await queue.add("draft", 2, job_id="one", if_exists="replace")).has_replaced
        assert [entry.data for entry in await stream.entries()] == [2]
        assert (await queue.add("draft", 3, job_id="one", delay_ms=LATER_MS, if_exists="postpone")).has_replaced
        assert (await stream.length(), await stored(stream, witness)) == (0, 1)

    async def test_a_burst_runs_once_with_the_last_data(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        """Debounce: the job waits until no producer has added for a while."""
        gate = Gate()
        gate.opened.set()
        async with make_worker(gate):
            for number in range(20):
                await queue.add("index", number, job_id="page-7", delay_ms=200, if_exists="postpone")
                await asyncio.sleep(0.02)  # twenty of them take longer than the delay
            await eventually(lambda: gate.jobs)
            await eventually(stream.is_settled)
        assert gate.data == [19]

    async def test_the_first_job_of_an_id_is_new_with_any_if_exists(self, queue: Queue) -> None:
        for choice in ("keep", "replace", "postpone"):
            job = await queue.add("draft", job_id=choice, delay_ms=LATER_MS, if_exists=choice)
            assert (job.is_new, job.has_replaced) == (True, False)
            assert await queue.cancel_delayed(choice)

    async def test_replacing_and_promotion_race_and_no_job_is_lost(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        """Each add is the job's last data, or comes while it runs and is not new, or is the next job."""
        ran: list[int] = []

        async def handle(job: Job) -> None:
            ran.append(job.data)

        expected: list[int] = []
        async with make_worker(handle):
            for number in range(300):
                job = await queue.add("index", number, job_id="one", delay_ms=number % 3, if_exists="replace")
                if job.has_replaced:
                    expected.pop()
                if job.is_new or job.has_replaced:
                    expected.append(number)
            await eventually(stream.is_settled)
            await eventually(lambda: len(ran) == len(expected))
        assert ran == expected


PROGRAM = """
import asyncio, sys
from pychasqui import Queue
url, name, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
async def main():
    queues = [Queue(name, redis_url=url) for _ in range(count)]
    print("ready", flush=True)
    sys.stdin.readline()
    jobs = await asyncio.gather(*(
        queue.add("send", first + n, job_id="the-one", delay_ms=(first + n) % 2 * 60_000)
        for n, queue in enumerate(queues)
    ))
    print(sum(job.is_new for job in jobs), flush=True)
    for queue in queues:
        await queue.close()
asyncio.run(main())
"""


class TestProcesses:
    async def test_one_of_100_producers_that_add_at_once_adds_the_job(
        self, redis_url: str, queue_name: str, stream: Stream, witness: Any
    ) -> None:
        """The 100 producers are in 5 processes, and mix delayed and immediate adds."""
        assert await added_by(redis_url, queue_name, processes=5, each=20) == 1
        assert await stored(stream, witness) == 1


async def added_by(redis_url: str, queue_name: str, *, processes: int, each: int) -> int:
    """The number of producers whose job was new."""
    go_on, go = os.pipe()
    running = [
        await start_program(PROGRAM, redis_url, queue_name, str(number * each), str(each), stdin=go_on)
        for number in range(processes)
    ]
    os.close(go_on)
    for process in running:
        assert await process.stdout.readline() == b"ready\n"
    os.close(go)  # the end of the input of all
    said = [(await process.communicate())[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes
    return sum(int(text) for text in said)
