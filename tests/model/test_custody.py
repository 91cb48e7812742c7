"""A real worker on a real server, at the moments when no worker seems to hold a job."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Queue, Worker
from pychasqui._redis.broker import Broker
from pychasqui._redis.keys import Keys
from pychasqui._redis.reading import ReadRequest
from pychasqui._redis.replies import ReleasedEntries
from pychasqui.errors import ConnectionLost
from pychasqui.job import Job
from tests.support.gate import Gate
from tests.support.handlers import RecordingHandler
from tests.support.waiting import eventually

GROUP = "default"
LEASE_MS = 600


def worker(queue_name: str, url: str, handler: Callable[[Job], Any], **options: Any) -> Worker:
    return Worker(queue_name, handler, redis_url=url, **{"lease_ms": LEASE_MS, "shutdown_deadline_s": 2.0} | options)


async def add(queue_name: str, url: str, *ids: str, **options: Any) -> None:
    queue = Queue(queue_name, redis_url=url)
    for job_id in ids:
        await queue.add("mail", job_id, job_id=job_id, **options)
    await queue.close()


async def hand_to(witness: redis.asyncio.Redis, keys: Keys, consumer: str) -> None:
    """Everything in the stream is read by a consumer that then says nothing more."""
    await witness.xgroup_create(keys.stream, GROUP, "0", mkstream=True)
    await witness.xreadgroup(GROUP, consumer, {keys.stream: ">"}, count=100)


def lose_replies(monkeypatch: pytest.MonkeyPatch, method: str) -> list[Any]:
    """Every first call of this Broker method is carried out, and its caller never hears of it."""
    lost: list[Any] = []
    genuine = getattr(Broker, method)

    async def without_reply(self: Broker, *arguments: Any, **options: Any) -> Any:
        reply = await genuine(self, *arguments, **options)
        if reply and not lost:
            lost.append(reply)
            raise ConnectionLost("the reply was lost")
        return reply

    monkeypatch.setattr(Broker, method, without_reply)
    return lost


class TestLostReplies:
    async def test_jobs_whose_takeover_was_never_answered_run(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys, runs = Keys(queue_name), RecordingHandler()
        await add(queue_name, redis_url, "a", "b")
        await hand_to(witness, keys, "dead")
        await witness.zadd(keys.workers, {"dead": 0})
        lost = lose_replies(monkeypatch, "take_over_if_lease_is_same")
        async with worker(queue_name, redis_url, runs):
            await eventually(lambda: lost)
            await eventually(lambda: runs.ids == {"a", "b"}, timeout=40)
        assert runs.attempts == {"a": [1], "b": [1]}

    async def test_jobs_whose_claim_was_never_answered_run(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys, runs = Keys(queue_name), RecordingHandler()
        await add(queue_name, redis_url, "a")
        await hand_to(witness, keys, "official")
        lost = lose_replies(monkeypatch, "claim_idle_without_lease")
        async with worker(queue_name, redis_url, runs, claim_min_idle_ms=300):
            await eventually(lambda: lost)
            await eventually(lambda: runs.ids == {"a"}, timeout=40)

    async def test_jobs_whose_delivery_was_never_answered_run_once(
        self, redis_url: str, queue_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runs = RecordingHandler()
        await add(queue_name, redis_url, "a", "b")
        lost = lose_replies(monkeypatch, "send_read")
        async with worker(queue_name, redis_url, runs):
            await eventually(lambda: lost)
            await eventually(lambda: runs.ids == {"a", "b"}, timeout=40)
        assert runs.attempts == {"a": [0], "b": [0]}

    @pytest.mark.parametrize("method", ("reschedule", "bury"))
    async def test_outcomes_that_were_never_answered_count_once(
        self,
        redis_url: str,
        queue_name: str,
        witness: redis.asyncio.Redis,
        monkeypatch: pytest.MonkeyPatch,
        method: str,
    ) -> None:
        attempts: list[int] = []

        async def handler(job: Job) -> None:
            attempts.append(job.attempt)
            raise LookupError

        lost = lose_replies(monkeypatch, method)
        await add(queue_name, redis_url, "a", attempts=3, backoff=1)
        async with worker(queue_name, redis_url, handler):
            await eventually(lambda: lost)
            await eventually(lambda: witness.xlen(Keys(queue_name).dead), timeout=40)
            await asyncio.sleep(0.3)
        assert attempts == [0, 1, 2]
        assert await witness.xlen(Keys(queue_name).dead) == 1


class TestSecondLife:
    async def test_a_worker_that_comes_back_under_its_name_runs_what_it_held(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        keys, runs = Keys(queue_name), RecordingHandler()
        await add(queue_name, redis_url, "a")
        await hand_to(witness, keys, "pod-0")
        async with worker(queue_name, redis_url, runs, consumer_id="pod-0"):
            await eventually(lambda: runs.ids == {"a"}, timeout=40)
        assert runs.attempts == {"a": [1]}

    async def test_each_life_of_a_worker_counts_as_an_attempt(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker that cannot hand back its entries leaves them as a killed process does."""
        keys, started = Keys(queue_name), asyncio.Event()
        attempts: list[int] = []

        async def handler(job: Job) -> None:
            attempts.append(job.attempt)
            started.set()
            await asyncio.sleep(60)

        async def unheard(*_: Any) -> ReleasedEntries:
            return ReleasedEntries(0, 1)

        for method in ("release_some_entries", "leave_group_if_lease_is_same"):
            monkeypatch.setattr(Broker, method, unheard)
        await add(queue_name, redis_url, "a", attempts=3)
        for life in range(3):
            started.clear()
            async with worker(queue_name, redis_url, handler, consumer_id="pod-0", shutdown_deadline_s=0.01):
                await asyncio.wait_for(started.wait(), 40)
            (hold,) = await witness.xpending_range(keys.stream, GROUP, "-", "+", 1)
            assert (hold["consumer"], hold["times_delivered"]) == (b"pod-0", life + 1)
        async with worker(queue_name, redis_url, handler, consumer_id="pod-0"):
            await eventually(lambda: witness.xlen(keys.dead), timeout=40)
        assert attempts == [0, 1, 2]

    async def test_more_than_one_page_of_pending_entries_is_counted(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        keys, runs = Keys(queue_name), RecordingHandler()
        queue = Queue(queue_name, redis_url=redis_url)
        await queue.add_bulk({"name": "mail", "data": number} for number in range(1234))
        await queue.close()
        await witness.xgroup_create(keys.stream, GROUP, "0")
        await witness.xreadgroup(GROUP, "pod-0", {keys.stream: ">"}, count=1234)
        async with worker(queue_name, redis_url, runs, consumer_id="pod-0"):
            await eventually(lambda: len(runs.ids) == 1234, timeout=40)
        assert list(runs.attempts.values()) == [[1]] * 1234

    async def test_a_worker_that_has_left_is_not_heard_of_again(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        genuine = Broker.leave_group_if_lease_is_same

        async def slowly(self: Broker, group: str, consumer: str, lease: float) -> bool:
            gone = await genuine(self, group, consumer, lease)
            await asyncio.sleep(LEASE_MS / 1000)
            return gone

        monkeypatch.setattr(Broker, "leave_group_if_lease_is_same", slowly)
        async with worker(queue_name, redis_url, RecordingHandler()):
            pass
        assert await witness.zrange(Keys(queue_name).workers, 0, -1) == []


class TestThereAndBack:
    async def test_a_run_that_lost_its_job_does_not_settle_it_when_it_comes_back(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        """Another worker had it in between and died: two runs are used up, not one."""
        keys, gate = Keys(queue_name), Gate(LookupError())
        await add(queue_name, redis_url, "a", attempts=3, backoff=1)
        async with worker(queue_name, redis_url, gate) as mine:
            await eventually(lambda: gate.running)
            await send_there_and_back(witness, keys, mine)
            gate.opened.set()
            await eventually(lambda: witness.xlen(keys.dead), timeout=40)
        assert gate.attempts == [0, 2]

    async def test_a_late_success_is_a_success(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        keys, gate = Keys(queue_name), Gate()
        await add(queue_name, redis_url, "a")
        async with worker(queue_name, redis_url, gate) as mine:
            await eventually(lambda: gate.running)
            await send_there_and_back(witness, keys, mine)
            await asyncio.sleep(LEASE_MS / 1000)
            assert gate.attempts == [0], "it is run beside itself"
            gate.opened.set()
            await eventually(lambda: _is_empty(witness, keys), timeout=40)
        assert gate.attempts == [0]

    async def test_an_unstarted_entry_is_started_once_by_its_last_delivery(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        keys, gate = Keys(queue_name), Gate()
        await add(queue_name, redis_url, "first")
        async with worker(queue_name, redis_url, gate, concurrency=1, claim_min_idle_ms=600) as mine:
            await eventually(lambda: gate.running)
            assert mine._components is not None
            await add(queue_name, redis_url, "a")
            parts = mine._components
            request = ReadRequest(
                10, 100, math.inf, parts.intake.take_in_new_unless_stale_and_start_lone_job, small_below=500
            )
            await (await parts.reading.send_read(GROUP, mine.consumer_id, request))
            assert mine._components.lanes.waiting_count == 1
            _, (entry_id, _) = await witness.xrange(keys.stream)
            for owner in ("other", mine.consumer_id):
                await witness.xclaim(keys.stream, GROUP, owner, 0, [entry_id])
            await eventually(
                lambda: parts.shared.holdings.collect_held_delivery_numbers().get(entry_id) == 3, timeout=40
            )
            gate.opened.set()
            await eventually(lambda: _is_empty(witness, keys), timeout=40)
        assert [(job.id, job.attempt) for job in gate.jobs] == [("first", 0), ("a", 2)]


async def send_there_and_back(witness: redis.asyncio.Redis, keys: Keys, mine: Worker) -> None:
    """Another worker takes the entry, and leaves; the first one has it again, two deliveries later."""
    ((entry_id, _),) = await witness.xrange(keys.stream)
    await witness.xclaim(keys.stream, GROUP, "other", 0, [entry_id])
    await witness.zadd(keys.workers, {"other": 0})

    async def is_back() -> bool:
        (hold,) = await witness.xpending_range(keys.stream, GROUP, entry_id, entry_id, 1)
        return (hold["consumer"], hold["times_delivered"]) == (mine.consumer_id.encode(), 3)

    await eventually(is_back, timeout=40)


async def _is_empty(witness: redis.asyncio.Redis, keys: Keys) -> bool:
    return await witness.xlen(keys.stream) == 0


class TestGroupGone:
    async def test_a_job_that_succeeds_while_it_is_gone_is_not_run_again(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        """With one lane the reader is not reading just then, and does not notice before the job is done."""
        keys, gate = Keys(queue_name), Gate()
        await add(queue_name, redis_url, "a")
        async with worker(queue_name, redis_url, gate, concurrency=1):
            await eventually(lambda: gate.running)
            await witness.xgroup_destroy(keys.stream, GROUP)
            gate.opened.set()
            await add(queue_name, redis_url, "b")
            await eventually(lambda: "b" in gate.data, timeout=40)
            await asyncio.sleep(0.2)
        assert gate.data == ["a", "b"]
        assert await witness.xlen(keys.stream) == 0, "the job is done, but the next worker will run it again"

    async def test_a_job_that_fails_while_it_is_gone_has_used_up_a_run(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        keys, gate = Keys(queue_name), Gate(LookupError())
        await add(queue_name, redis_url, "a", attempts=2, backoff=1)
        async with worker(queue_name, redis_url, gate, concurrency=1):
            await eventually(lambda: gate.running)
            await witness.xgroup_destroy(keys.stream, GROUP)
            gate.opened.set()
            await eventually(lambda: witness.xlen(keys.dead), timeout=40)
        assert gate.attempts == [0, 1]


class TestLoopThatEnds:
    def test_the_end_of_the_loop_ends_the_worker(self, redis_url: str, queue_name: str) -> None:
        """As when the program fails beside its worker: asyncio.run cancels every task and waits for it."""

        async def program() -> None:
            started = asyncio.Event()

            async def handler(job: Job) -> None:
                started.set()
                await asyncio.sleep(60)

            await add(queue_name, redis_url, "a")
            running = asyncio.create_task(worker(queue_name, redis_url, handler).run())
            await started.wait()
            running.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise LookupError("the program failed")

        ended = threading.Event()

        def run() -> None:
            with pytest.raises(LookupError):
                asyncio.run(program())
            ended.set()

        threading.Thread(target=run, daemon=True).start()
        assert ended.wait(5)


class TestHandlers:
    async def test_unstarted_jobs_of_a_plain_function_go_back_without_using_up_a_run(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        """A thread cannot be cancelled, but the entries that wait for one can be handed back."""
        started, gate = threading.Event(), threading.Event()

        def handler(job: Job) -> None:
            started.set()
            gate.wait(5)

        await add(queue_name, redis_url, "a", "b")
        first = worker(queue_name, redis_url, handler, concurrency=1)
        running = asyncio.create_task(first.run())
        await eventually(started.is_set)
        assert first._components is not None
        parts = first._components
        request = ReadRequest(
            10, 100, math.inf, parts.intake.take_in_new_unless_stale_and_start_lone_job, small_below=500
        )
        await (await parts.reading.send_read(GROUP, first.consumer_id, request))
        closing = asyncio.create_task(first.close())
        await asyncio.sleep(0.1)
        gate.set()
        await asyncio.gather(closing, running)
        runs = RecordingHandler()
        async with worker(queue_name, redis_url, runs):
            await eventually(lambda: runs.ids == {"b"}, timeout=40)
        assert runs.attempts == {"b": [0]}
