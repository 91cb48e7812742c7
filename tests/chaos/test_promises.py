"""The promises that hold when workers are slow, blocked, killed, suspended or closed. One promise a test.

The times are the promised ones or stricter, with shorter handlers than users have.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Job, Queue, Worker
from pychasqui._core.delivery import Delivery
from tests.chaos.conftest import MakeCrew
from tests.chaos.crew import Crew, Member
from tests.chaos.diary import RunRecord, read_runs
from tests.chaos.line import AbandonableProxy
from tests.support.server import RedisServer
from tests.support.streams import Stream
from tests.support.waiting import eventually, first_below

LONG_MS = 60_000


async def add(queue: Queue, count: int = 1, *, ms: float = 20, does: str = "ok", first: int = 1, **more: Any) -> None:
    """Jobs for worker_process.py; `acts`, `blocks` go into their data, `attempts` and `backoff` beside it."""
    beside: dict[str, Any] = {key: more.pop(key) for key in ("attempts", "backoff") if key in more}
    numbers = range(first, first + count)
    await queue.add_bulk({"name": "do", "data": {"n": n, "ms": ms, "does": does, **more}, **beside} for n in numbers)


async def started(crew: Crew, runs: int, *, timeout: float = 10) -> list[RunRecord]:
    """Waits for `count` runs, and returns all runs."""
    found: list[RunRecord] = []

    def enough() -> bool:
        found[:] = read_runs(crew.log)
        return len(found) >= runs

    await eventually(enough, timeout=timeout, every=0.02)
    return found


async def crew_of(make_crew: MakeCrew, count: int = 1, **settings: Any) -> tuple[Crew, list[Member]]:
    crew = make_crew(**settings)
    members = [crew.start(seat) for seat in range(count)]
    await crew.until_up()
    return crew, members


class TestALiveJob:
    @pytest.mark.parametrize("blocks", (False, True), ids=("awaits", "blocks the loop"))
    async def test_a_handler_far_slower_than_every_limit_runs_once(
        self, make_crew: MakeCrew, queue: Queue, stream: Stream, blocks: bool
    ) -> None:
        options = {"claim_min_idle_ms": 1000, "lease_ms": 1000}
        crew, _ = await crew_of(make_crew, 2, concurrency=1, options=options)
        await add(queue, ms=5000, blocks=blocks)
        await started(crew, 1)
        await eventually(stream.is_settled, timeout=20, every=0.1)
        assert [run.ending for run in read_runs(crew.log)] == ["ok"]
        said = "".join((crew.folder / f"w{number}.log").read_text() for number in (0, 1))
        assert ("has been blocked" in said) is blocks

    async def test_a_hundred_slow_handlers_run_a_hundred_times(
        self, make_crew: MakeCrew, queue: Queue, stream: Stream
    ) -> None:
        options = {"claim_min_idle_ms": 1000, "lease_ms": 1000}
        crew, _ = await crew_of(make_crew, 2, concurrency=30, options=options)
        await add(queue, 100, ms=3000)
        await eventually(stream.is_settled, timeout=30, every=0.1)
        assert [run.ending for run in read_runs(crew.log)] == ["ok"] * 100

    @pytest.mark.parametrize(
        ("trouble", "relief"),
        (
            (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
            (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
            (("CLIENT", "PAUSE", "60000", "WRITE"), ("CLIENT", "UNPAUSE")),
        ),
        ids=("out of memory", "read only", "writes paused"),
    )
    async def test_no_lease_is_lost_while_the_server_refuses_all_writes(
        self,
        make_crew: MakeCrew,
        queue: Queue,
        server: RedisServer,
        stream: Stream,
        trouble: tuple[str, ...],
        relief: tuple[str, ...],
    ) -> None:
        crew, _ = await crew_of(make_crew, 2, options={"lease_ms": 900})
        await add(queue, 10, ms=6000)
        await started(crew, 10)
        server.execute(*trouble)
        await asyncio.sleep(3)
        server.execute(*relief)
        await eventually(stream.is_settled, timeout=40, every=0.1)
        assert [run.ending for run in read_runs(crew.log)] == ["ok"] * 10

    @pytest.mark.parametrize("kills", (True, False), ids=("killed", "hanging"))
    async def test_no_lease_is_lost_while_the_server_is_away(
        self, make_crew: MakeCrew, queue_name: str, kills: bool
    ) -> None:
        with RedisServer("--appendonly", "yes", "--appendfsync", "always") as server:
            async with Queue(queue_name, redis_url=server.url) as queue:
                crew, _ = await crew_of(make_crew, 2, urls=[server.url] * 2, options={"lease_ms": 900})
                await add(queue, 10, ms=6000)
                await started(crew, 10)
                server.kill() if kills else server.pause()
                await asyncio.sleep(3)
                server.start() if kills else server.resume()
                await eventually(lambda: server.execute("XLEN", _stream_key(queue_name)) == 0, timeout=40, every=0.1)
            assert [run.ending for run in read_runs(crew.log)] == ["ok"] * 10

    async def test_no_lease_is_lost_when_connections_die_without_a_word(
        self, make_crew: MakeCrew, queue: Queue, server: RedisServer, stream: Stream
    ) -> None:
        async with AbandonableProxy(server.url) as line:
            crew, _ = await crew_of(make_crew, 2, urls=[line.url, server.url], options={"lease_ms": 1500})
            await add(queue, 20, ms=6000)
            await started(crew, 20)
            line.abandon()
            await eventually(stream.is_settled, timeout=30, every=0.1)
            assert [run.ending for run in read_runs(crew.log)] == ["ok"] * 20


class TestAKilledWorker:
    @pytest.mark.parametrize(("options", "limit_s"), (({}, 12.0), ({"lease_ms": 1000}, 3.0)), ids=("default", "short"))
    async def test_its_jobs_run_again_in_time(
        self, make_crew: MakeCrew, queue: Queue, options: dict[str, Any], limit_s: float
    ) -> None:
        crew, (doomed,) = await crew_of(make_crew, 1, concurrency=100, options=options)
        await add(queue, 100, ms=LONG_MS)
        await started(crew, 100)
        crew.start(1)
        await crew.until_up()
        crew.kill(doomed)
        killed_at = monotonic()
        runs = await started(crew, 200, timeout=limit_s + 5)
        assert max(run.start for run in runs) - killed_at < limit_s
        assert sorted(run.attempt for run in runs) == [0] * 100 + [1] * 100

    async def test_a_survivor_with_a_long_backlog_takes_its_jobs_on_all_the_same(
        self, make_crew: MakeCrew, queue: Queue
    ) -> None:
        crew, (doomed,) = await crew_of(make_crew, 1, concurrency=5, options={"lease_ms": 1000})
        await add(queue, 5, ms=LONG_MS)
        await started(crew, 5)
        await add(queue, 5000, ms=20, first=6)
        crew.start(1)
        await crew.until_up()
        crew.kill(doomed)
        killed_at = monotonic()

        def again() -> list[RunRecord]:
            return [run for run in read_runs(crew.log) if run.number <= 5 and run.attempt == 1]

        await eventually(lambda: len(again()) == 5, timeout=40, every=0.1)
        assert max(run.start for run in again()) - killed_at < 5

    @pytest.mark.parametrize(
        "acts",
        (
            {"0": "die", "1": "die", "2": "die"},
            {"0": "die", "1": "fail", "2": "die"},
            {"0": "fail", "1": "die", "2": "fail"},
        ),
        ids=("die die die", "die fail die", "fail die fail"),
    )
    async def test_crashes_and_failures_count_alike(
        self, make_crew: MakeCrew, queue: Queue, witness: redis.asyncio.Redis, acts: dict[str, str]
    ) -> None:
        crew = make_crew(seats=1, options={"lease_ms": 500})
        manned = asyncio.create_task(crew.keep_manned())
        await add(queue, acts=acts, attempts=3, backoff=20)
        dead_key = _stream_key(queue.name).replace(":stream", ":dlq")
        await eventually(lambda: witness.xlen(dead_key), timeout=25, every=0.1)
        manned.cancel()
        assert [run.attempt for run in read_runs(crew.log)] == [0, 1, 2]
        ((_, letter),) = await witness.xrange(dead_key)
        assert letter[b"reason"] == b"retries_exhausted"

    @pytest.mark.parametrize(
        "acts",
        ({"0": "die", "1": "die", "2": "die"}, {"0": "fail", "1": "die", "2": "die"}),
        ids=("dies", "fails, dies"),
    )
    async def test_a_worker_that_dies_again_and_again_under_its_name_uses_up_the_attempts(
        self, make_crew: MakeCrew, queue: Queue, witness: redis.asyncio.Redis, acts: dict[str, str]
    ) -> None:
        """As in a pod that keeps its name: no other worker takes over, and the worker finds its own entries."""
        crew = make_crew(seats=1, max_attempts=3, options={"consumer_id": "pod-0", "lease_ms": 1000})
        manned = asyncio.create_task(crew.keep_manned())
        await add(queue, acts=acts, backoff=20)
        dead_key = _stream_key(queue.name).replace(":stream", ":dlq")
        await eventually(lambda: witness.xlen(dead_key), timeout=25, every=0.1)
        manned.cancel()
        assert [run.attempt for run in read_runs(crew.log)] == [0, 1, 2]
        ((_, letter),) = await witness.xrange(dead_key)
        assert (letter[b"reason"], letter[b"attempts"]) == (b"retries_exhausted", b"3")


class TestASuspendedWorker:
    @pytest.mark.parametrize("does", ("fail", "give up"))
    async def test_its_late_failure_changes_nothing(
        self, make_crew: MakeCrew, queue: Queue, stream: Stream, does: str
    ) -> None:
        crew, (sleeper,) = await crew_of(make_crew, 1, options={"lease_ms": 800})
        await add(queue, ms=4000, acts={"0": does})
        await started(crew, 1)
        crew.start(1)
        await crew.until_up()
        crew.stop(sleeper)
        await started(crew, 2)
        crew.resume(sleeper)
        await eventually(lambda: read_runs(crew.log)[0].ending == "failed")
        await asyncio.sleep(0.5)  # for a wrong move to be made
        assert not {"delayed", "dlq"} & set(await stream.keys())
        await eventually(stream.is_settled, timeout=40)
        assert [(run.attempt, run.ending) for run in read_runs(crew.log)] == [(0, "failed"), (1, "ok")]

    async def test_its_unstarted_jobs_do_not_start_there_once_other_workers_own_them(
        self, make_crew: MakeCrew, queue: Queue, stream: Stream
    ) -> None:
        """The suspension falls between a read and the first renewal that would cover the entries of that read."""
        crew, (sleeper,) = await crew_of(make_crew, 1, concurrency=1, options={"lease_ms": 900, "read_count": 50})
        await add(queue, 400, ms=5)
        await started(crew, 100)
        crew.stop(sleeper)
        crew.start(1)
        await crew.until_up(crew.members[1])
        await eventually(stream.is_settled, timeout=20, every=0.1)
        crew.resume(sleeper)
        await asyncio.sleep(1)  # for wrong starts to be made
        stale = [run for run in read_runs(crew.log) if run.worker == sleeper.name and run.ending == "ok"]
        elsewhere = {run.number for run in read_runs(crew.log) if run.worker != sleeper.name}
        resumed_at = crew.mishaps[-1].end
        assert [run.number for run in stale if run.start > resumed_at and run.number in elsewhere] == []


class TestAClosingWorker:
    @pytest.mark.parametrize("runs_on_s", (0.3, 6.0), ids=("handlers end", "handlers go on"))
    async def test_its_prefetched_jobs_start_elsewhere_within_a_second(
        self, redis_url: str, queue: Queue, runs_on_s: float
    ) -> None:
        async def last_start() -> float:
            """How long after the close the last of the prefetched jobs starts elsewhere."""
            is_stalled = False
            ended: set[str] = set()
            starts: dict[str, float] = {}
            attempts: set[int] = set()

            async def fast_then_slow(job: Job) -> None:
                if is_stalled:
                    await asyncio.sleep(runs_on_s)
                ended.add(job.id)

            async def note(job: Job) -> None:
                starts[job.id] = monotonic()
                attempts.add(job.attempt)

            await queue.add_bulk({"name": "do", "data": number} for number in range(20_000))
            closing = Worker(queue.name, fast_then_slow, redis_url=redis_url, concurrency=10, consumer_id="closing")
            async with closing:
                await eventually(lambda: len(ended) > 2000 and len(_inbox(closing)) >= 50, every=0)
                is_stalled = True
                prefetched = {job.id for job in _inbox(closing)}
                closed_at = monotonic()
                closes = asyncio.create_task(closing.close())
                async with Worker(queue.name, note, redis_url=redis_url, concurrency=10):
                    await eventually(lambda: prefetched <= starts.keys() | ended)
                    await closes
            times = [starts[job_id] - closed_at for job_id in prefetched & starts.keys()]
            assert len(times) >= len(prefetched) - 20, "they waited for the handlers that run"
            assert attempts == {0}
            await queue.purge("waiting")
            return max(times)

        await first_below(1, last_start)

    async def test_a_plain_function_at_work_does_not_cost_the_others_an_attempt(
        self, make_crew: MakeCrew, queue: Queue
    ) -> None:
        """The thread cannot be cancelled, but the entries that wait behind it can be handed back."""
        crew, (closing,) = await crew_of(make_crew, 1, concurrency=2, is_async=False)
        await add(queue, 300, ms=2)
        await started(crew, 200)
        await add(queue, 2, ms=3000, first=1000)
        await add(queue, 100, ms=2, first=2000)
        await eventually(lambda: sum(run.number >= 1000 for run in read_runs(crew.log)) >= 2, every=0.001)
        crew.start(1)
        await crew.close(closing)
        await eventually(lambda: len({run.number for run in read_runs(crew.log)}) == 402, timeout=40)
        assert {run.attempt for run in read_runs(crew.log)} == {0}

    async def test_a_handler_that_outlasts_the_deadline_is_handed_back_at_once(
        self, make_crew: MakeCrew, queue: Queue
    ) -> None:
        crew, (closing,) = await crew_of(make_crew, 1, options={"shutdown_deadline_s": 0.5})
        await add(queue, 10, ms=LONG_MS)
        await started(crew, 10)
        crew.start(1)
        await crew.until_up()
        closed_at = monotonic()
        assert await crew.close(closing) == 0
        runs = await started(crew, 20)
        assert max(run.start for run in runs) - closed_at < 2.0
        assert [run.ending for run in runs[:10]] == ["cancelled"] * 10
        assert {run.attempt for run in runs} == {0}

    async def test_graceful_restarts_leave_no_names_behind(
        self, make_crew: MakeCrew, queue: Queue, stream: Stream, witness: redis.asyncio.Redis
    ) -> None:
        crew = make_crew(seats=1)
        for number in range(5):
            member = crew.start(0)
            await add(queue, 10, first=1 + 10 * number)
            await started(crew, 10 * number + 10)
            assert await crew.close(member) == 0
        assert await stream.consumers() == []
        assert await witness.zcard(_stream_key(queue.name).replace(":stream", ":workers")) == 0
        assert [run.ending for run in read_runs(crew.log)] == ["ok"] * 50


def _stream_key(queue_name: str) -> str:
    return f"{{chasqui:{queue_name}}}:stream"


def _inbox(worker: Worker) -> list[Delivery]:
    assert worker._components is not None
    return list(worker._components.shared.holdings.inbox)
