"""A connection cut before a request, after its execution or inside its reply, at every command that there is.

Each flow is a small story with a known end: how often each job ran and under which attempt number, and what is left in
Redis. A cut at any of its commands must not change the end. BOUNDARIES lists the commands; a flow that sends one that
is not on its list fails, and so does a case whose cut never fell.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import pytest
import redis.asyncio

from pychasqui import Job, Queue, RedisTrouble, RepeatPattern, UnrecoverableError, Worker
from pychasqui._redis.dialect import parse_version
from pychasqui._supervisor.leases import LeaseHolder
from pychasqui._supervisor.messages import HeldLease
from tests.chaos.boundaries import MOMENTS, cut_at, names_in
from tests.support.proxy import Moment, Proxy
from tests.support.server import has_xackdel
from tests.support.streams import Stream, twice
from tests.support.waiting import eventually

LEASE_MS = 600
JOBS = 8
HOUR_MS = 3_600_000
T = TypeVar("T")


@dataclass
class CutScene:
    """The line belongs to the worker or the producer that the flow is about; the witness has its own."""

    line: Proxy
    direct_url: str
    queue_name: str
    witness: redis.asyncio.Redis
    stream: Stream
    runs: list[Job] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return f"{{chasqui:{self.queue_name}}}"

    def queue(self, url: str | None = None) -> Queue:
        return Queue(self.queue_name, redis_url=url or self.line.url)

    def worker(self, *, url: str | None = None, **settings: Any) -> Worker:
        async def succeed(job: Job) -> None:
            self.runs.append(job)

        settings = {"handler": succeed, "lease_ms": LEASE_MS, "concurrency": 4, "events_enabled": False, **settings}
        return Worker(self.queue_name, redis_url=url or self.line.url, **settings)

    async def add(self, count: int = JOBS, **options: Any) -> None:
        async with self.queue(self.direct_url) as queue:
            await queue.add_bulk({"name": "do", "data": number, **options} for number in range(count))

    @asynccontextmanager
    async def until_settled(self) -> AsyncIterator[None]:
        """Inside, a worker runs; leave when nothing is stored, and no run has come on top for a while."""
        yield
        await eventually(self.is_settled, timeout=40, every=0.02)
        await asyncio.sleep(0.1)

    async def is_settled(self) -> bool:
        return await self.stream.is_settled() and not await self.witness.zcard(f"{self.prefix}:delayed")

    def attempts(self) -> dict[Any, list[int]]:
        """By the number of the job."""
        found: dict[Any, list[int]] = {}
        for job in self.runs:
            found.setdefault(job.data, []).append(job.attempt)
        return found

    async def check_clean(self) -> None:
        """Nothing is stored, and the group has no consumer left."""
        assert await self.is_settled()
        assert await self.stream.consumers() == []


class Flow(Protocol):
    __name__: str

    async def __call__(self, scene: CutScene) -> None: ...


async def add(scene: CutScene) -> None:
    async with scene.queue() as queue:
        ids = [(await queue.add("do", number)).id for number in range(3)]
    assert await scene.stream.ids() == ids


async def add_in_bulk(scene: CutScene) -> None:
    async with scene.queue() as queue:
        ids = [job.id for job in await queue.add_bulk({"name": "do", "data": number} for number in range(2500))]
    stored = await scene.stream.ids()
    assert twice(stored) == []
    assert sorted(stored) == sorted(ids)


async def run_and_ack(scene: CutScene) -> None:
    await scene.add()
    async with scene.worker(), scene.until_settled():
        await eventually(lambda: len(scene.runs) >= JOBS)
    assert scene.attempts() == {number: [0] for number in range(JOBS)}
    await scene.check_clean()


async def fail_and_try_again(scene: CutScene) -> None:
    async def fail_once(job: Job) -> None:
        scene.runs.append(job)
        if job.attempt == 0:
            raise ValueError

    await scene.add(backoff={"kind": "fixed", "delay_ms": 20, "jitter_ms": 0})
    async with scene.worker(handler=fail_once), scene.until_settled():
        await eventually(lambda: len(scene.runs) >= 2 * JOBS)
    assert scene.attempts() == {number: [0, 1] for number in range(JOBS)}
    assert await scene.witness.xlen(f"{scene.prefix}:dlq") == 0
    await scene.check_clean()


async def bury(scene: CutScene) -> None:
    async def give_up(job: Job) -> None:
        scene.runs.append(job)
        raise UnrecoverableError

    await scene.add()
    async with scene.worker(handler=give_up), scene.until_settled():
        await eventually(lambda: len(scene.runs) >= JOBS)
    assert scene.attempts() == {number: [0] for number in range(JOBS)}
    assert await scene.witness.xlen(f"{scene.prefix}:dlq") == JOBS
    await scene.check_clean()


async def promote(scene: CutScene) -> None:
    await scene.add()
    for _, fields in await scene.witness.xrange(f"{scene.prefix}:stream"):
        await scene.witness.zadd(f"{scene.prefix}:delayed", {b"\x02\x00\x00\x00do" + fields[b"d"]: 1})
    await scene.witness.delete(f"{scene.prefix}:stream")
    async with scene.worker(), scene.until_settled():
        await eventually(lambda: len(scene.runs) >= JOBS)
    assert scene.attempts() == {number: [0] for number in range(JOBS)}
    await scene.check_clean()


async def hold(scene: CutScene, consumer: str) -> None:
    """A consumer takes all there is, and is never heard of again."""
    key = f"{scene.prefix}:stream"
    await scene.witness.xgroup_create(key, "default", "0")
    await scene.witness.xreadgroup("default", consumer, {key: ">"}, count=JOBS)


async def end_lease(scene: CutScene, consumer: str) -> None:
    """Ends the lease now; the entries were not touched since then."""
    seconds, micros = await scene.witness.time()
    await scene.witness.zadd(f"{scene.prefix}:workers", {consumer: seconds * 1000 + micros // 1000})


async def take_over(scene: CutScene) -> None:
    await scene.add()
    await hold(scene, "dead")
    await end_lease(scene, "dead")
    async with scene.worker(), scene.until_settled():
        await eventually(lambda: len(scene.runs) >= JOBS, timeout=40)
    assert scene.attempts() == {number: [1] for number in range(JOBS)}
    await scene.check_clean()


async def restart_under_the_same_name(scene: CutScene) -> None:
    """A worker of this name was killed with all the jobs in its hands: it may have run them, and each counts once."""
    await scene.add()
    await hold(scene, "pod-0")
    await end_lease(scene, "pod-0")
    async with scene.worker(consumer_id="pod-0"), scene.until_settled():
        await eventually(lambda: len(scene.runs) >= JOBS, timeout=40)
    assert scene.attempts() == {number: [1] for number in range(JOBS)}
    await scene.check_clean()


async def claim_idle(scene: CutScene) -> None:
    await scene.add()
    await hold(scene, "official")
    pending = await scene.witness.xpending_range(f"{scene.prefix}:stream", "default", "-", "+", JOBS)
    ids = [each["message_id"] for each in pending]
    await scene.witness.xclaim(f"{scene.prefix}:stream", "default", "official", 0, ids, idle=60_000, justid=True)
    async with scene.worker(claim_min_idle_ms=30_000), scene.until_settled():
        await eventually(lambda: len(scene.runs) >= JOBS, timeout=40)
    assert scene.attempts() == {number: [1] for number in range(JOBS)}
    await scene.witness.xgroup_delconsumer(f"{scene.prefix}:stream", "default", "official")
    await scene.check_clean()


async def find_orphans(scene: CutScene) -> None:
    """The reply to the first read is lost, so that there is something to find."""
    lost = cut_at(scene.line, "XREADGROUP", "after request")
    await run_and_ack(scene)
    assert lost.done.is_set()


async def renew_worker_lease(scene: CutScene) -> None:
    """Handlers run for five leases, while another worker waits for its chance."""

    async def take_long(job: Job) -> None:
        scene.runs.append(job)
        await asyncio.sleep(5 * LEASE_MS / 1000)

    await scene.add(4)
    async with scene.worker(handler=take_long), scene.until_settled():
        await eventually(lambda: len(scene.runs) >= 4)
        async with scene.worker(url=scene.direct_url):
            await eventually(scene.is_settled, timeout=40, every=0.05)
    assert scene.attempts() == {number: [0] for number in range(4)}
    await scene.check_clean()


async def hand_back(scene: CutScene) -> None:
    """A worker closes while it runs some jobs and holds others; the next one runs all of them, none counted."""

    async def never_end(job: Job) -> None:
        await asyncio.Event().wait()

    worker = scene.worker(handler=never_end, shutdown_deadline_s=0.1)
    async with worker:
        parts = worker._components
        assert parts is not None
        await scene.add(4)
        await eventually(lambda: len(parts.shared.holdings.list_running_jobs()) == 4)
        await scene.add(4)

        def holds_more() -> bool:
            parts.prefetch._estimate.rate = 100.0  # such a fast worker holds entries that it cannot start yet
            parts.reader.wake_if_asleep()
            return parts.lanes.waiting_count == 4

        await eventually(holds_more)
    async with scene.worker(url=scene.direct_url), scene.until_settled():
        await eventually(lambda: len(scene.runs) >= 8, timeout=40)
    assert scene.attempts() == {number: [0, 0] for number in range(4)}
    await scene.check_clean()


async def replay(scene: CutScene) -> None:
    await bury(CutScene(scene.line, scene.direct_url, scene.queue_name, scene.witness, scene.stream))
    async with scene.queue() as queue:
        for _ in range(10):
            with suppress(RedisTrouble):
                await queue.dlq.replay()
                break
    stored = await scene.stream.ids()
    assert len(stored) == JOBS
    assert twice(stored) == []
    assert await scene.witness.xlen(f"{scene.prefix}:dlq") == 0


async def add_delayed(scene: CutScene) -> None:
    async with scene.queue() as queue:
        jobs = [await queue.add("do", number, delay_ms=HOUR_MS) for number in range(3)]
    assert [job.is_new for job in jobs] == [True] * 3
    assert await scene.witness.zcard(f"{scene.prefix}:delayed") == 3
    async with scene.queue(scene.direct_url) as queue:
        assert await queue.cancel_delayed_bulk(job.id for job in jobs) == [True] * 3
    left = await scene.stream.keys()
    assert [key for key in left if not key.startswith("ledger:")] == []  # which ends by itself


async def add_unique(scene: CutScene) -> None:
    """The producer gets the right answer though the reply was lost: new once, and replaced once."""
    async with scene.queue() as queue:
        first = await queue.add("do", 1, job_id="only", delay_ms=HOUR_MS)
        second = await queue.add("do", 2, job_id="only")
        third = await queue.add("do", 3, job_id="only", if_exists="postpone")
    assert [job.is_new for job in (first, second, third)] == [True, False, False]
    assert [job.has_replaced for job in (first, second, third)] == [False, False, True]
    assert [entry.data for entry in await scene.stream.entries()] == [3]
    assert await scene.witness.zcard(f"{scene.prefix}:delayed") == 0


async def add_a_mixed_bulk(scene: CutScene) -> None:
    jobs: list[dict[str, Any]] = [{"name": "do", "data": number} for number in range(2500)]
    for number in range(0, 2500, 5):
        jobs[number]["delay_ms"] = HOUR_MS
    for number in range(0, 2500, 7):
        jobs[number]["job_id"] = f"job {number % 70}"  # ten of them, each many times
    async with scene.queue() as queue:
        added = await queue.add_bulk(jobs)
    new = [job for job in added if job.is_new]
    assert len(new) == 2500 - len(range(0, 2500, 7)) + 10
    assert await scene.stream.length() + await scene.witness.zcard(f"{scene.prefix}:delayed") == len(new)
    assert twice(await scene.stream.ids()) == []


async def insist(say: Callable[[], Awaitable[T]]) -> T:
    """Adds again after an error, as a user would."""
    for _ in range(10):
        with suppress(RedisTrouble):
            return await say()
    raise AssertionError("there is no answer at all")


async def cancel(scene: CutScene) -> None:
    async with scene.queue(scene.direct_url) as queue:
        mine, other = [await queue.add("do", number, delay_ms=HOUR_MS, job_id=str(number)) for number in range(2)]
    async with scene.queue() as queue:
        await insist(lambda: queue.cancel_delayed(mine.id))
        assert await insist(lambda: queue.cancel_delayed(mine.id)) is False
        assert await insist(lambda: queue.cancel_delayed(other.id)) is True
    assert await scene.stream.keys() == []


async def cancel_waiting(scene: CutScene) -> None:
    async with scene.queue(scene.direct_url) as queue:
        ids = [(await queue.add("do", number)).id for number in range(3)]
    async with scene.queue() as queue:
        await insist(lambda: queue.cancel(ids[1]))
        assert await insist(lambda: queue.cancel(ids[1])) == "unknown"
    assert await scene.stream.ids() == [ids[0], ids[2]]


async def stop_running(scene: CutScene) -> None:
    async def wait(job: Job) -> None:
        scene.runs.append(job)
        await asyncio.sleep(60)

    await scene.add(1)
    async with scene.worker(handler=wait), scene.until_settled():
        await eventually(lambda: scene.runs)
        async with scene.queue(scene.direct_url) as queue:
            assert await queue.cancel(scene.runs[0].id) == "stopping"
    assert scene.attempts() == {0: [0]}
    assert await scene.witness.exists(f"{scene.prefix}:dlq", f"{scene.prefix}:cancelled") == 0
    await scene.check_clean()


async def reschedule(scene: CutScene) -> None:
    async with scene.queue(scene.direct_url) as queue:
        job = await queue.add("do", 1, delay_ms=10_000)
    async with scene.queue() as queue:
        assert await insist(lambda: queue.reschedule(job.id, HOUR_MS)) is True
    ((_, due_ms),) = await scene.witness.zrange(f"{scene.prefix}:delayed", 0, -1, withscores=True)
    seconds, _ = await scene.witness.time()
    assert seconds * 1000 + HOUR_MS - 5000 < due_ms < seconds * 1000 + HOUR_MS + 5000


async def run_now(scene: CutScene) -> None:
    async with scene.queue(scene.direct_url) as queue:
        job = await queue.add("do", 1, delay_ms=HOUR_MS, job_id="only")
    async with scene.queue() as queue:
        await insist(lambda: queue.run_now(job.id))
        assert await insist(lambda: queue.run_now(job.id)) is False
    assert [entry.data for entry in await scene.stream.entries()] == [1]
    assert await scene.witness.zcard(f"{scene.prefix}:delayed") == 0


async def ack_unique_jobs(scene: CutScene) -> None:
    """The end of a unique job frees its id."""
    async with scene.worker(), scene.queue(scene.direct_url) as queue, scene.until_settled():
        for number in range(JOBS):
            assert (await queue.add("do", number, job_id=f"job {number}")).is_new
        await eventually(lambda: len(scene.runs) >= JOBS)
        await eventually(scene.is_settled, timeout=40, every=0.02)
        assert [key for key in await scene.stream.keys() if key.startswith("unique:")] == []
    assert scene.attempts() == {number: [0] for number in range(JOBS)}
    await scene.check_clean()


async def fire(scene: CutScene) -> None:
    async with scene.queue(scene.direct_url) as queue, scene.worker(), scene.until_settled():
        await queue.upsert_repeatable_job("do", 1, repeat=RepeatPattern.every(200), limit=4)
        await eventually(lambda: len(scene.runs) >= 4, timeout=40)
    windows = sorted(job.scheduled_at_ms or 0 for job in scene.runs)
    assert [window - windows[0] for window in windows] == [0, 200, 400, 600]
    assert await scene.witness.exists(f"{scene.prefix}:repeat") == 0
    await scene.check_clean()


async def bury_repeatable(scene: CutScene) -> None:
    await scene.witness.zadd(f"{scene.prefix}:repeat", {"broken": 1000})
    await scene.witness.hset(f"{scene.prefix}:repeat:spec:broken", "spec", b"\xc1")
    async with scene.worker():
        await eventually(lambda: scene.witness.xlen(f"{scene.prefix}:dlq"), timeout=40)
        await asyncio.sleep(0.1)
    assert await scene.witness.xlen(f"{scene.prefix}:dlq") == 1
    assert await scene.witness.exists(f"{scene.prefix}:repeat", f"{scene.prefix}:repeat:spec:broken") == 0


async def store_repeatables(scene: CutScene) -> None:
    async with scene.queue() as queue:
        meta = await insist(lambda: queue.repeatables.upsert("do", 1, repeat=RepeatPattern.every(HOUR_MS), key="k"))
        assert [found.key for found in await insist(queue.get_repeatable_jobs)] == ["k"]
        assert await scene.witness.zrange(f"{scene.prefix}:repeat", 0, -1, withscores=True) == [
            (b"k", meta.next_fire_ms)
        ]
        await insist(lambda: queue.repeatables.pause("k"))
        assert await insist(lambda: queue.repeatables.pause("k")) is False
        await insist(lambda: queue.repeatables.resume("k"))
        assert await scene.witness.zcard(f"{scene.prefix}:repeat") == 1
        await insist(lambda: queue.remove_repeatable_by_key("k"))
        assert await insist(lambda: queue.remove_repeatable_by_key("k")) is False
    assert await scene.stream.keys() == []


async def write_events(scene: CutScene) -> None:
    """A cut may cost events or write them twice, but it never writes an event of a state that a job did not reach."""

    async def fail_once(job: Job) -> None:
        scene.runs.append(job)
        if job.attempt == 0 and job.data == 0:
            raise ValueError

    await scene.add(backoff={"kind": "fixed", "delay_ms": 20, "jitter_ms": 0})
    async with scene.worker(handler=fail_once, events_enabled=True), scene.until_settled():
        await eventually(lambda: len(scene.runs) >= JOBS + 1)
    assert scene.attempts() == {number: [0, 1] if number == 0 else [0] for number in range(JOBS)}
    ids = {job.id for job in scene.runs}
    failed = {job.id for job in scene.runs if job.attempt}
    events = [
        (fields[b"e"], fields[b"id"].decode()) for _, fields in await scene.witness.xrange(f"{scene.prefix}:events")
    ]
    assert {job_id for kind, job_id in events if kind == b"completed"} <= ids
    assert {job_id for kind, job_id in events if kind in (b"failed", b"retry-scheduled")} <= failed
    assert {kind for kind, _ in events} <= {
        b"active",
        b"completed",
        b"failed",
        b"retry-scheduled",
        b"waiting",
        b"drained",
    }
    await scene.witness.delete(f"{scene.prefix}:events")
    await scene.check_clean()


async def store_results(scene: CutScene) -> None:
    async def answer(job: Job) -> int:
        scene.runs.append(job)
        return 100 + int(job.data)

    await scene.add()
    async with scene.worker(handler=answer, store_results=True), scene.until_settled():
        await eventually(lambda: len(scene.runs) >= JOBS)
    assert scene.attempts() == {number: [0] for number in range(JOBS)}
    async with scene.queue(scene.direct_url) as queue:
        results = await queue.get_job_result_bulk([job.id for job in scene.runs])
    assert results == [100 + job.data for job in scene.runs]
    await scene.check_clean()


async def wait_for_results(scene: CutScene) -> None:
    """The line belongs to the waiting queue; the worker has another."""

    async def answer(job: Job) -> int:
        scene.runs.append(job)
        return 100 + int(job.data)

    events = {"events_enabled": True, "store_results": True}
    async with scene.queue(scene.direct_url) as adding, scene.queue() as queue:
        jobs = await adding.add_bulk({"name": "do", "data": number} for number in range(JOBS))
        waiting = asyncio.ensure_future(queue.wait_for_results([job.id for job in jobs], timeout=40))
        async with scene.worker(url=scene.direct_url, handler=answer, **events), scene.until_settled():
            assert await waiting == [100 + number for number in range(JOBS)]
    assert scene.attempts() == {number: [0] for number in range(JOBS)}
    await scene.witness.delete(f"{scene.prefix}:events")


async def purge(scene: CutScene) -> None:
    """The purged jobs go, whatever the count says; running and dead jobs stay."""
    await scene.add(4)
    await hold(scene, "running")
    await scene.witness.xadd(f"{scene.prefix}:dlq", {"d": "x"})
    async with scene.queue(scene.direct_url) as queue:
        for number in range(1200):
            await queue.add("do", number, job_id=f"waiting {number}" if number < 10 else None)
        for number in range(10):
            await queue.add("do", number, delay_ms=HOUR_MS, job_id=f"delayed {number}")
    async with scene.queue() as queue:
        await insist(lambda: queue.purge("waiting"))
        await insist(lambda: queue.purge("delayed"))
        assert await insist(lambda: queue.drain(delayed=True)) == 0
    assert (await scene.stream.length(), await scene.witness.xlen(f"{scene.prefix}:dlq")) == (4, 1)
    assert {key.split(":")[0] for key in await scene.stream.keys()} <= {"stream", "dlq", "ledger"}


async def obliterate(scene: CutScene) -> None:
    """Everything goes but the group that a consumer is in."""
    await scene.add(4)
    await hold(scene, "running")
    async with scene.queue(scene.direct_url) as queue:
        await queue.add("do", delay_ms=HOUR_MS)
    async with scene.queue() as queue:
        await insist(queue.obliterate)
    assert await scene.stream.length() == 0
    assert await scene.witness.exists(f"{scene.prefix}:delayed") == 0
    groups = await scene.witness.xinfo_groups(f"{scene.prefix}:stream")
    assert [(group["name"], group["consumers"], group["pending"]) for group in groups] == [(b"default", 1, 0)]


async def pause(scene: CutScene) -> None:
    async with scene.queue() as queue:
        await insist(queue.pause)
        assert await insist(queue.is_paused)
        await scene.add()
        async with scene.worker(url=scene.direct_url), scene.until_settled():
            await asyncio.sleep(0.1)
            assert scene.runs == []
            await insist(queue.resume)
            assert not await insist(queue.is_paused)
            await eventually(lambda: len(scene.runs) >= JOBS)
    assert scene.attempts() == {number: [0] for number in range(JOBS)}
    await scene.check_clean()


async def hold_a_lease(scene: CutScene) -> None:
    """A supervisor holds the lease of a worker that shows no sign of life, and ends it when its process has died."""
    lease = HeldLease(scene.line.url, False, scene.queue_name, "default", "silent", LEASE_MS)
    workers = f"{scene.prefix}:workers"
    await scene.witness.xgroup_create(scene.stream.key, "default", "0", mkstream=True)
    await scene.witness.zadd(workers, {"silent": await now_ms(scene.witness) + LEASE_MS})
    holder = LeaseHolder()
    holder.start_renewing_lease_if_worker_does_not(lease)
    await asyncio.sleep(2.5 * LEASE_MS / 1000)
    assert float(await scene.witness.zscore(workers, "silent") or 0) > await now_ms(scene.witness)
    holder.start_ending_leases([lease], has_exited_with_error=False)
    await eventually(lambda: _is_empty(scene.witness, workers))
    await holder.close()


async def _is_empty(witness: redis.asyncio.Redis, key: str) -> bool:
    return not await witness.exists(key)


async def now_ms(witness: redis.asyncio.Redis) -> int:
    seconds, micros = await witness.time()
    return int(seconds * 1000 + micros // 1000)


# The commands of each flow. The first set has those that any worker sends.
WORKER = {
    "HELLO", "INFO", "SUBSCRIBE", "claim_name", "rebuild_group", "claim_held", "renew_worker_lease", "read",
    "XREADGROUP", "promote", "due_repeatables", "XPENDING", "CLIENT UNBLOCK", "leave_group", "register_queue",
    "release_leader_lease", "ZSCORE",
}  # fmt: skip
BOUNDARIES: dict[Flow, set[str]] = {
    add: {"HELLO", "add", "XADD", "DEL", "register_queue"},
    add_in_bulk: {"add"},
    run_and_ack: WORKER | {"XACKDEL"},
    fail_and_try_again: {"reschedule", "promote", "XREADGROUP", "XACKDEL"},
    bury: {"bury", "XREADGROUP"},
    promote: {"promote", "XREADGROUP"},
    take_over: {"XPENDING", "ZRANGE", "TIME", "take_over", "XACKDEL"},
    claim_idle: {"XPENDING", "ZRANGE", "TIME", "claim_idle", "XACKDEL"},
    restart_under_the_same_name: {
        "HELLO",
        "rebuild_group",
        "list_pending",
        "count_delivery",
        "renew_worker_lease",
        "XREADGROUP",
        "XACKDEL",
    },
    find_orphans: {"list_pending", "XREADGROUP"},
    renew_worker_lease: {"renew_worker_lease"},
    hold_a_lease: {"HELLO", "hold_lease", "leave_group", "ZSCORE"},
    hand_back: {
        "CLIENT UNBLOCK",
        "TIME",
        "release_entries",
        "leave_group",
        "release_leader_lease",
        "renew_worker_lease",
    },
    replay: {"XREVRANGE", "XRANGE", "replay"},
    add_delayed: {"HELLO", "add_with_options", "DEL"},
    add_unique: {"add_with_options"},
    add_a_mixed_bulk: {"add_with_options"},
    cancel: {"move_delayed"},
    cancel_waiting: {"cancel", "XRANGE"},
    stop_running: {"EXISTS", "read_cancellations", "bury"},
    reschedule: {"move_delayed"},
    run_now: {"move_delayed"},
    ack_unique_jobs: {"ack_unique", "XREADGROUP"},
    fire: {"SUBSCRIBE", "due_repeatables", "fire", "XREADGROUP", "XACKDEL"},
    bury_repeatable: {"due_repeatables", "bury_repeatable"},
    write_events: {"write_events", "write_completed", "XACKDEL", "reschedule", "XREADGROUP"},
    store_results: {"ack_with_result", "XREADGROUP"},
    wait_for_results: {"HELLO", "XREVRANGE", "XREAD", "MGET"},
    purge: {"XREVRANGE", "ZCARD", "purge_waiting", "purge_delayed"},
    obliterate: {"empty_stream"},
    pause: {"pause", "EXISTS", "DEL", "PUBLISH"},
    store_repeatables: {"TIME", "upsert_repeatable", "remove_pause_or_resume_repeatable", "ZRANGE", "ZSCORE", "HMGET"},
}
ALSO_SENT = WORKER | {
    "HELLO",
    "AUTH",  # with the users of `make acl`
    "XACKDEL",
    "ack",
    "list_pending",
    "ZRANGE",
    "TIME",
    "DEL",
    "UNLINK",
    "SCAN",
    "XLEN",
    "ZSCORE",
    "ZRANGEBYSCORE",
    "bury",
    "add",
}
SKIPPED: dict[Flow, int] = {renew_worker_lease: 2}  # the first renewals come before anything is held
CASES = [
    pytest.param(
        flow,
        name,
        id=f"{flow.__name__}-{name}",
    )
    for flow, names in BOUNDARIES.items()
    for name in sorted(names)
]


@asynccontextmanager
async def a_scene(redis_url: str, witness: redis.asyncio.Redis) -> AsyncIterator[CutScene]:
    queue_name = f"q-{uuid4().hex[:12]}"
    async with Proxy(redis_url) as line:
        yield CutScene(line, redis_url, queue_name, witness, Stream(witness, queue_name))


@pytest.mark.parametrize("flow", list(BOUNDARIES))
async def test_a_flow_without_a_cut_has_the_end_that_is_expected_and_no_other_boundaries(
    redis_url: str, witness: redis.asyncio.Redis, flow: Flow
) -> None:
    async with a_scene(redis_url, witness) as scene:
        await flow(scene)
        assert names_in(scene.line) <= BOUNDARIES[flow] | ALSO_SENT


@pytest.mark.parametrize(("flow", "name"), CASES)
async def test_a_cut_changes_nothing(redis_url: str, witness: redis.asyncio.Redis, flow: Flow, name: str) -> None:
    if name == "XACKDEL" and not await has_xackdel(witness):
        name = "ack"
    if name == "XADD" and not await _has_idmp(witness):
        name = "add"
    # Side by side, to save time: each has a queue of its own.
    ends = await asyncio.gather(*(_play(redis_url, witness, flow, name, moment) for moment in MOMENTS))
    assert ends == [None] * len(MOMENTS)


async def _play(redis_url: str, witness: redis.asyncio.Redis, flow: Flow, name: str, moment: Moment) -> str | None:
    """Plays the flow, and returns the problems."""
    async with a_scene(redis_url, witness) as scene:
        cut = cut_at(scene.line, name, moment, skip=SKIPPED.get(flow, 0))
        try:
            await flow(scene)
            assert cut.done.is_set(), f"no {name} was sent"
        except AssertionError as error:
            return f"cut {moment}: {error}"
        return None


async def test_every_script_is_cut_somewhere() -> None:
    from tests.chaos.boundaries import _SCRIPTS

    counted = Counter(name for names in BOUNDARIES.values() for name in names)
    assert set(_SCRIPTS.values()) - counted.keys() == {"ack"}  # which stands in for XACKDEL


async def _has_idmp(witness: redis.asyncio.Redis) -> bool:
    server = await witness.info("server")
    return "valkey_version" not in server and parse_version(server["redis_version"]) >= (8, 6)
