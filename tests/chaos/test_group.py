"""The consumer group is destroyed while jobs run: workers rebuild it with the same owners, and no job runs twice."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from time import monotonic

import pytest
import redis.asyncio

from pychasqui import Job, Queue, Worker
from tests.chaos.conftest import MakeCrew
from tests.chaos.crew import Crew
from tests.chaos.diary import read_runs
from tests.chaos.test_promises import add, crew_of, started
from tests.support.gate import Gate
from tests.support.streams import Stream
from tests.support.waiting import eventually, first_below

GROUP = "default"
LEASE_MS = 1500


class Destroyer:
    def __init__(self, client: redis.asyncio.Redis, stream: Stream) -> None:
        self.client, self.stream = client, stream

    async def destroy(self, times: int = 1, every_s: float = 0.25) -> int:
        """How often there was a group to destroy."""
        found = 0
        for number in range(times):
            if number:
                await asyncio.sleep(every_s)
            found += await self.client.xgroup_destroy(self.stream.key, GROUP)
        return found

    async def server_ms(self) -> int:
        seconds, micros = await self.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    async def group_is_there(self) -> bool:
        return any(group["name"] == GROUP.encode() for group in await self.client.xinfo_groups(self.stream.key))

    async def all_is_done(self) -> bool:
        async with self.client.pipeline(transaction=True) as both:  # a job may move in between
            both.zcard(self.stream.key.replace(":stream", ":delayed"))
            both.xlen(self.stream.key)
            return await both.execute() == [0, 0] and await self.group_is_there()


@pytest.fixture
def destroyer(witness: redis.asyncio.Redis, stream: Stream) -> Destroyer:
    return Destroyer(witness, stream)


def runs_of(crew: Crew) -> Counter[tuple[int, int]]:
    """How often each attempt of each job was run."""
    return Counter((run.number, run.attempt) for run in read_runs(crew.log))


class TestRunningJobs:
    @pytest.mark.parametrize("is_async", (True, False), ids=("async", "plain"))
    async def test_each_attempt_runs_once_in_two_processes(
        self, make_crew: MakeCrew, queue: Queue, destroyer: Destroyer, is_async: bool
    ) -> None:
        """The jobs wait for a lane, await, block the loop, and fail."""
        crew, _ = await crew_of(make_crew, 2, concurrency=5, is_async=is_async, options={"lease_ms": LEASE_MS})
        await add(queue, 30, first=1, ms=300)
        await add(queue, 4, first=100, ms=600, blocks=True)
        await add(queue, 20, first=200, ms=100, acts={"0": "fail", "1": "fail"}, backoff=50)
        await add(queue, 300, first=1000, ms=15)
        await started(crew, 10)
        assert await destroyer.destroy(times=8) >= 3
        await eventually(destroyer.all_is_done, timeout=30, every=0.1)
        once = [(n, 0) for n in (*range(1, 31), *range(100, 104), *range(1000, 1300))]
        assert runs_of(crew) == Counter(once + [(n, attempt) for n in range(200, 220) for attempt in range(3)])

    async def test_each_attempt_runs_once_in_one_process(
        self, redis_url: str, queue_name: str, queue: Queue, destroyer: Destroyer
    ) -> None:
        runs: Counter[tuple[int, int]] = Counter()

        async def handler(job: Job) -> None:
            runs[job.data, job.attempt] += 1
            await asyncio.sleep(job.data % 7 / 20)
            if job.data % 5 == 0 and job.attempt == 0:
                raise LookupError("as asked")

        def worker() -> Worker:
            return Worker(queue_name, handler, redis_url=redis_url, concurrency=10, lease_ms=LEASE_MS)

        await queue.add_bulk({"name": "do", "data": n, "backoff": 20} for n in range(400))
        async with worker(), worker():
            await eventually(lambda: len(runs) > 30)
            assert await destroyer.destroy(times=10, every_s=0.1) >= 3
            await eventually(destroyer.all_is_done, timeout=20, every=0.1)
        assert runs == Counter([(n, 0) for n in range(400)] + [(n, 1) for n in range(0, 400, 5)])

    async def test_no_job_runs_twice_at_full_speed(
        self, redis_url: str, queue_name: str, queue: Queue, destroyer: Destroyer
    ) -> None:
        """The jobs take no time, so entries move from the stream to a lane and to the ack all the time."""
        runs: Counter[int] = Counter()

        async def handler(job: Job) -> None:
            runs[job.data] += 1

        def worker() -> Worker:
            return Worker(queue_name, handler, redis_url=redis_url, lease_ms=LEASE_MS)

        async def pour() -> None:
            for start in range(0, 40_000, 1000):
                await queue.add_bulk({"name": "do", "data": n} for n in range(start, start + 1000))
                await asyncio.sleep(0.01)

        async with worker(), worker():
            pouring = asyncio.create_task(pour())
            await eventually(lambda: runs)
            assert await destroyer.destroy(times=15, every_s=0.05) >= 2
            await pouring
            await eventually(destroyer.all_is_done, timeout=20, every=0.1)
        assert len(runs) == 40_000
        assert {n: count for n, count in runs.items() if count > 1} == {}

    async def test_the_group_is_rebuilt_within_a_second(
        self, make_crew: MakeCrew, queue: Queue, destroyer: Destroyer
    ) -> None:
        crew, _ = await crew_of(make_crew, 2, options={"lease_ms": 6000})
        await add(queue, 4, ms=3000)
        await started(crew, 4)
        count = 4

        async def rebuilt() -> float:
            nonlocal count
            count += 1
            await destroyer.destroy()
            began = monotonic()
            await add(queue, 1, first=count)
            await started(crew, count)
            return monotonic() - began

        await first_below(1, rebuilt)
        await eventually(destroyer.all_is_done, timeout=40, every=0.1)
        assert set(runs_of(crew).values()) == {1}


class TestOtherWorkers:
    async def test_a_draining_worker_gets_the_group_back_and_settles_its_jobs(
        self, make_crew: MakeCrew, queue: Queue, destroyer: Destroyer
    ) -> None:
        """It reads no more, and there is no other worker: it needs the group to reschedule a failed job."""
        crew, (member,) = await crew_of(make_crew, 1, seats=1, options={"lease_ms": 30_000})
        await add(queue, 2, ms=800, acts={"0": "fail"}, backoff=50)
        await started(crew, 2)
        closing = asyncio.create_task(crew.close(member))
        await asyncio.sleep(0.3)
        await destroyer.destroy()
        began = monotonic()
        assert await closing == 0
        assert monotonic() - began < 4
        assert await destroyer.stream.length() == 0, "the failures are not settled"
        crew.start(0)
        await eventually(destroyer.all_is_done, timeout=40, every=0.1)
        assert runs_of(crew) == Counter([(n, attempt) for n in (1, 2) for attempt in (0, 1)])

    @pytest.mark.parametrize("blocks", (False, True), ids=("awaits", "blocks the loop"))
    async def test_a_worker_that_starts_meanwhile_waits_for_the_reports_of_the_others(
        self, make_crew: MakeCrew, queue: Queue, destroyer: Destroyer, blocks: bool
    ) -> None:
        crew, _ = await crew_of(make_crew, 1, concurrency=2, options={"lease_ms": LEASE_MS})
        await add(queue, 2 - blocks, ms=2500, blocks=blocks)
        await started(crew, 2 - blocks)
        await add(queue, 20, first=10)
        await destroyer.destroy()
        crew.start(1)
        await crew.until_up()
        await eventually(destroyer.all_is_done, timeout=40, every=0.1)
        assert set(runs_of(crew).values()) == {1}
        assert len(runs_of(crew)) == 22 - blocks

    async def test_a_suspended_worker_delays_the_rebuilding_no_longer_than_its_lease(
        self, make_crew: MakeCrew, queue: Queue, destroyer: Destroyer
    ) -> None:
        crew, members = await crew_of(make_crew, 2, concurrency=2, options={"lease_ms": LEASE_MS})
        await add(queue, 4, ms=6000)
        runs = await started(crew, 4)
        suspended, other = members
        crew.stop(suspended)
        await destroyer.destroy()
        await eventually(destroyer.group_is_there, timeout=4)  # else the jobs end first
        crew.kill(suspended)
        await eventually(destroyer.all_is_done, timeout=30, every=0.1)
        kept = {run.number for run in runs if run.worker == other.name}
        assert len(kept) == 2
        times = Counter(run.number for run in read_runs(crew.log))
        assert times == {n: 1 if n in kept else 2 for n in range(1, 5)}

    async def test_a_worker_that_does_not_report_delays_the_rebuilding_by_its_lease_and_a_second(
        self, redis_url: str, queue_name: str, queue: Queue, destroyer: Destroyer
    ) -> None:
        workers = destroyer.stream.key.replace(":stream", ":workers")

        async def rebuilt() -> float:
            """How long after the end of the lease the group is there again."""
            ends_ms = await destroyer.server_ms() + LEASE_MS
            await destroyer.client.zadd(workers, {"silent": ends_ms})
            await destroyer.destroy()
            await eventually(destroyer.group_is_there)
            late_s = (await destroyer.server_ms() - ends_ms) / 1000
            assert late_s > -0.05, "the worker was not waited for"
            return late_s

        gate = Gate()
        async with Worker(queue_name, gate, redis_url=redis_url, lease_ms=LEASE_MS):
            await queue.add("do", 1)
            await eventually(lambda: gate.running)
            await first_below(1, rebuilt)
            gate.opened.set()
            await eventually(destroyer.all_is_done)
        assert gate.data == [1]

    async def test_the_jobs_of_a_killed_worker_run_again_and_no_others(
        self, make_crew: MakeCrew, queue: Queue, destroyer: Destroyer
    ) -> None:
        crew, (killed, other) = await crew_of(make_crew, 2, concurrency=2, options={"lease_ms": LEASE_MS})
        await add(queue, 4, ms=4000)
        runs = await started(crew, 4)
        crew.kill(killed)
        await destroyer.destroy()
        await eventually(destroyer.all_is_done, timeout=30, every=0.1)
        kept = {run.number for run in runs if run.worker == other.name}
        times = Counter(run.number for run in read_runs(crew.log))
        assert times == {n: 1 if n in kept else 2 for n in range(1, 5)}

    async def test_a_paused_queue_gets_it_back_as_well(
        self, redis_url: str, queue_name: str, queue: Queue, destroyer: Destroyer
    ) -> None:
        runs: list[int] = []

        async def handler(job: Job) -> None:
            runs.append(job.data)
            await asyncio.sleep(1)

        async with Worker(queue_name, handler, redis_url=redis_url, lease_ms=LEASE_MS):
            await queue.add("do", 1)
            await eventually(lambda: runs)
            await queue.pause()
            await destroyer.destroy()
            await queue.add("do", 2)
            await eventually(destroyer.group_is_there)
            await queue.resume()
            await eventually(destroyer.all_is_done, timeout=40)
        assert runs == [1, 2]

    async def test_the_loss_and_the_return_of_the_group_are_logged_once_each(
        self, redis_url: str, queue_name: str, queue: Queue, destroyer: Destroyer, caplog: pytest.LogCaptureFixture
    ) -> None:
        started, gate = asyncio.Event(), asyncio.Event()

        async def handler(job: Job) -> None:
            started.set()
            await gate.wait()
            raise LookupError("so that there is something to settle")

        async with Worker(queue_name, handler, redis_url=redis_url, consumer_id="me", max_attempts=1):
            await queue.add("do", 1)
            await started.wait()
            caplog.set_level("INFO", "chasqui.worker")
            await destroyer.destroy()
            gate.set()
            await eventually(destroyer.all_is_done)
            await eventually(lambda: "is back" in caplog.text)
        said = [record.getMessage() for record in caplog.records if "the group" in record.getMessage()]
        assert [line.partition(":")[0] for line in said] == [
            "the group of worker me is gone; it is made again once all workers have reported what they hold",
            "the group of worker me is back",
        ]
        assert not [record for record in caplog.records if "keeps trying" in record.getMessage()]


class TestGroupChangedByHand:
    async def test_a_group_set_back_by_hand_hangs_nothing(
        self, redis_url: str, queue_name: str, queue: Queue, destroyer: Destroyer
    ) -> None:
        runs: Counter[int] = Counter()

        async def handler(job: Job) -> None:
            runs[job.data] += 1
            await asyncio.sleep(0.3)

        async with Worker(queue_name, handler, redis_url=redis_url, lease_ms=LEASE_MS):
            await queue.add_bulk({"name": "do", "data": n} for n in range(5))
            await eventually(lambda: len(runs) == 5)
            await destroyer.client.xgroup_setid(destroyer.stream.key, GROUP, "0")
            await queue.add("do", 5)
            await eventually(destroyer.all_is_done, timeout=40)
        assert len(runs) == 6

    async def test_several_workers_go_on_at_once_after_a_flush(
        self, redis_url: str, queue_name: str, queue: Queue, destroyer: Destroyer
    ) -> None:
        runs: list[int] = []

        async def handler(job: Job) -> None:
            runs.append(job.data)
            await asyncio.sleep(0.2)

        def worker() -> Worker:
            return Worker(queue_name, handler, redis_url=redis_url)

        async with worker(), worker():
            await queue.add_bulk({"name": "do", "data": n} for n in range(10))
            await eventually(lambda: len(runs) == 10)

            async def go_on() -> float:
                number = len(runs)
                await destroyer.client.flushall()
                flushed_at = monotonic()
                await queue.add("do", number)
                await eventually(lambda: number in runs)
                return monotonic() - flushed_at

            await first_below(1, go_on)
            await eventually(destroyer.all_is_done)
        assert sorted(runs) == list(range(len(runs)))

    async def test_entries_that_came_while_the_loop_was_blocked_are_not_started_once_others_have_them(
        self, redis_url: str, queue_name: str, queue: Queue, destroyer: Destroyer, make_crew: MakeCrew
    ) -> None:
        """The entries lie in the socket's buffer when the heartbeat reports what this worker holds."""
        crew = make_crew(options={"lease_ms": LEASE_MS})
        runs: list[int] = []
        dropped: list[int] = []

        def meanwhile() -> None:
            asyncio.run(_add_from_outside(redis_url, queue_name))
            with redis.Redis.from_url(redis_url) as client:
                dropped.append(client.xpending(destroyer.stream.key, GROUP)["pending"] - 1)
                client.xgroup_destroy(destroyer.stream.key, GROUP)
            crew.start(0)

        async def handler(job: Job) -> None:
            runs.append(job.data["n"])
            if job.data["n"] == 1:
                await asyncio.sleep(0.1)  # until the next read is on its way
                threading.Thread(target=meanwhile).start()
                time.sleep(4)

        async with Worker(queue_name, handler, redis_url=redis_url, concurrency=20, lease_ms=LEASE_MS):
            await queue.add("do", {"n": 1})
            await eventually(lambda: runs)
            await asyncio.sleep(0.2)
            await eventually(destroyer.all_is_done, timeout=40)
        assert dropped == [10], "they were not on their way to the blocked worker"
        assert sorted(runs + [run.number for run in read_runs(crew.log)]) == [1, *range(100, 110)]


async def _add_from_outside(redis_url: str, queue_name: str) -> None:
    async with Queue(queue_name, redis_url=redis_url) as queue:
        await add(queue, 10, first=100)
